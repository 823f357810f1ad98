"""Unit tests: one decision or one small part at a time, no patching."""

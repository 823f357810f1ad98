"""Property tests: safety over generated states."""

"""The real processes together."""

"""Data of other programs, as they write it."""

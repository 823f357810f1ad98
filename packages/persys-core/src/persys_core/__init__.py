"""Persys core: the domain and the application layer.

Everything that is decided is decided here, from values that are passed in. Nothing here opens a
socket or a file, or reads a clock, the environment or global randomness.
"""

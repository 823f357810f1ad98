"""The cluster ports on an embedded SQLite file."""

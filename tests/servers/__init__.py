"""Real servers for tests, started and always ended."""

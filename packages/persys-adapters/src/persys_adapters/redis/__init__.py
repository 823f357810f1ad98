"""The EventLog and Telemetry ports on Redis."""

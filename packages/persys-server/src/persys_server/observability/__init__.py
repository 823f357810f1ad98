"""What people and programs see of a running server: logs, metrics, traces. Decides nothing."""

"""What people and programs see of a running server: logs and metrics. No decision is made here."""

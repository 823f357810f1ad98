"""What runs workloads: one port, one folder per technology."""

"""Volumes along a workload's life: here, whether local data ties it to its node."""

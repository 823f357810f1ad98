"""Persys agent: runs on a compute node, starts and stops workloads and reports what it sees."""

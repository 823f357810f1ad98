"""The contract suites of the ports, on every implementation."""

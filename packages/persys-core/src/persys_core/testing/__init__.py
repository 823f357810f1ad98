"""Shipped test tools: contract suites for the ports, and helpers for tests on virtual time."""

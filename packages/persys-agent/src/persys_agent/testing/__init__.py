"""Shipped test tools: the contract suites of the agent's ports."""

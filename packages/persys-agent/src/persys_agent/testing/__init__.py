"""Public test doubles of the agent's ports, for its own tests and those of others."""

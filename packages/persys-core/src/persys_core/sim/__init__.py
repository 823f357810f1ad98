"""Simulation: virtual time, the model of an agent, faults, and what runs whole clusters on them."""

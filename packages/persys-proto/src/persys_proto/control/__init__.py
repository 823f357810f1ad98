"""Versions of the contract that the scheduler serves."""

"""Simulated clusters in virtual time."""

"""Versions of the contract that compute agents serve."""

"""Failures: how they are told apart, how often and when something is tried again. Pure."""

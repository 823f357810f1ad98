"""Agents for the scheduler's suites: simulated ones, or real ones with containers on Docker."""

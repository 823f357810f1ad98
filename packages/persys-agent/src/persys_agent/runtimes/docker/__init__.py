"""Containers on a Docker Engine."""

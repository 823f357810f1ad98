"""Compose applications on a Docker Engine."""

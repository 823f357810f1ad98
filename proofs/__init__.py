"""Proofs: runs that take too long for the tests, each with a short form among them.

Each prints its figures as `name value unit` lines and fails where something does not hold. The
figures of the last full runs stand in docs/proofs.md.
"""

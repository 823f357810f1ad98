"""Persys server: wires the core to its adapters, serves, and stops in order.

No scheduling decision lives here.
"""

"""Protocols of everything outside the core. A lost race is a value, a broken backend an error.

Each port has an in-memory implementation in ``persys_core.memory`` and a contract suite in
``persys_core.testing`` that any implementation can be proven with.
"""

"""Persys adapters: the ports of `persys_core` on real technology, one folder for each.

No decision is taken here, and no folder imports the folder of another technology.
"""

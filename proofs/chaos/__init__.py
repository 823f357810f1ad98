"""Chaos: a whole cluster of real processes that are killed, stopped and cut off from a seed.

What happened is judged by an observer that reads etcd and the machines' journals, never the
scheduler. `python -m proofs.chaos --minutes 10 --seed 1`.
"""

"""Volumes along a workload's life: what is attached where, who may write, what ties it to a node.

``wishes`` names a spec's volumes, ``following`` keeps the records in step with every commit,
``claims`` says who may write, and ``affinity`` whether local data ties a workload to its node.
"""

"""Who acts for which node where several replicas act at once. Pure.

``hashing``: which shard, or which member, a node belongs to. ``hand_over``: when a member may act
for a node that another one had. ``map_changes``: the next version of the map. ``coverage``: what
nobody acts for, and what two do.
"""

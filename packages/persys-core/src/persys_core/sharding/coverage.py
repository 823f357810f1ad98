"""Which nodes nobody acts for, and which two do (field report L05). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from persys_core.model.ids import NodeId
from persys_core.model.replica import InstanceId
from persys_core.sharding.hand_over import Seats
from persys_core.sharding.hashing import UNASSIGNED, shard_of

__all__ = ["Coverage", "coverage_of_members", "coverage_of_shards"]


@frozen
class Coverage:
    """``owned``: how many nodes each replica acts for. ``unowned`` and ``doubly_owned`` name nodes;
    the empty id among them stands for the workloads without a node."""

    owned: Mapping[InstanceId, int] = field(factory=dict)
    unowned: tuple[NodeId, ...] = ()
    doubly_owned: tuple[NodeId, ...] = ()


def coverage_of_shards(
    nodes: Iterable[NodeId], count: int, leaders: Mapping[int, InstanceId]
) -> Coverage:
    """In failover and active-active mode. ``leaders``: who leads each shard that has a leader."""
    acting = {}
    for node in (UNASSIGNED, *nodes):
        leader = leaders.get(shard_of(node, count), "")
        acting[node] = (leader,) if leader else ()
    return _coverage(acting)


def coverage_of_members(nodes: Iterable[NodeId], seats: Seats) -> Coverage:
    """In elastic mode."""
    return _coverage({node: seats.acting(node) for node in (UNASSIGNED, *nodes)})


def _coverage(acting: Mapping[NodeId, tuple[InstanceId, ...]]) -> Coverage:
    owned = Counter(who for node, found in acting.items() if node for who in found)
    return Coverage(
        dict(sorted(owned.items())),
        tuple(sorted(node for node, found in acting.items() if not found)),
        tuple(sorted(node for node, found in acting.items() if len(found) > 1)),
    )

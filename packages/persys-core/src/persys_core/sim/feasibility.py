"""Could this workload run on that node? The plain answer that the placer's is held against.

Decided here: nothing new. Every condition is written as simply as it can be, from records alone,
so that a fault of the columnar fleet or of a cached filter shows as work that waits for no reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from persys_core.model.constraints import parse_constraints
from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.placement.demand import charge_for, drivers_of
from persys_core.placement.labels import Label, labels_in
from persys_core.placement.request import PlacementRequest
from persys_core.ports.cluster_store import Key, Kind
from persys_core.sim.mirror import Mirror
from persys_core.volumes.affinity import has_local_data

__all__ = ["can_grow", "nodes_for"]


def nodes_for(mirror: Mirror, workload: Workload, status: StatusRecord) -> Iterator[NodeId]:
    """The nodes that could take the workload now, in no particular order."""
    pinned = status.data_node_id if has_local_data(workload.spec) else ""
    marker = mirror.get(Key.marker())
    listed = marker.create_revision if marker else -1
    for node in mirror.values(Kind.NODE, Node):
        open_here = pinned in ("", node.id) and node.listed_under == listed
        if open_here and _suits(mirror, workload, node) and _fits(mirror, workload, node):
            yield node.id


def can_grow(mirror: Mirror, workload: Workload, assignment: Assignment) -> bool:
    """Whether the node has room for what the present spec asks beyond what is held there."""
    node = mirror.node(assignment.node_id)
    if node is None:
        return False
    wanted = charge_for(PlacementRequest.of(workload), node).larger(assignment.charged)
    return (wanted - assignment.charged).fits_in(_free(mirror, node))


def _suits(mirror: Mirror, workload: Workload, node: Node) -> bool:
    wishes = parse_constraints(workload.spec.metadata)
    return (
        node.is_schedulable
        and not node.intent.taints
        and mirror.tombstone(node.id, workload.id) is None
        and workload.spec.type in node.workload_types
        and drivers_of(workload.spec) <= node.storage_drivers
        and wishes.node_selector.items() <= node.labels.items()
        and node.id not in wishes.exclude_nodes
        and not _meets_foe(mirror, workload, node, set(wishes.anti_affinity.items()))
    )


def _fits(mirror: Mirror, workload: Workload, node: Node) -> bool:
    return charge_for(PlacementRequest.of(workload), node).fits_in(_free(mirror, node))


def _free(mirror: Mirror, node: Node) -> Resources:
    return node.allocatable - mirror.charges(node.id).charged


def _meets_foe(mirror: Mirror, workload: Workload, node: Node, foes: set[Label]) -> bool:
    for other in mirror.values(Kind.ASSIGNMENT, Assignment):
        if other.node_id != node.id or other.released or other.workload_id == workload.id:
            continue
        stored = mirror.workload(other.workload_id)
        if stored is not None and not foes.isdisjoint(labels_in(stored.spec.metadata)):
            return True
    return False

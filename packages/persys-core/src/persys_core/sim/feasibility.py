"""Could this workload run on that node? The plain answer that the placer's is held against.

Decided here: nothing new. Every condition is written as simply as it can be, from records alone,
so that a fault of the columnar fleet or of a cached filter shows as work that waits for no reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from persys_core.model.constraints import parse_constraints
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.volume import Attachment, Volume, VolumeId
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.placement.demand import charge_for, drivers_of
from persys_core.placement.labels import Label, labels_in
from persys_core.placement.request import PlacementRequest
from persys_core.ports.cluster_store import Key, Kind
from persys_core.sim.mirror import Mirror
from persys_core.volumes.affinity import has_local_data
from persys_core.volumes.wishes import is_exclusive_volume, is_local, wanted_volumes

__all__ = ["Feasibility"]


@define(eq=False)
class Feasibility:
    """Answers about the records as they stand when it is made."""

    mirror: Mirror
    _runners: dict[Label, set[tuple[NodeId, WorkloadId]]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._runners = {}
        for placed in self.mirror.values(Kind.ASSIGNMENT, Assignment):
            stored = self.mirror.workload(placed.workload_id)
            for label in labels_in(stored.spec.metadata) if stored and not placed.released else ():
                self._runners.setdefault(label, set()).add((placed.node_id, placed.workload_id))

    def nodes_for(self, workload: Workload, status: StatusRecord) -> Iterator[NodeId]:
        """The nodes that could take the workload, in the order of their records."""
        pinned = status.data_node_id if has_local_data(workload.spec) else ""
        marker = self.mirror.get(Key.marker())
        listed = marker.create_revision if marker else -1
        request = PlacementRequest.of(workload)
        if self.lacks_a_volume(workload):
            return
        for node in self.mirror.values(Kind.NODE, Node):
            open_here = pinned in ("", node.id) and node.listed_under == listed
            if open_here and self._fits(request, node) and self._suits(workload, node):
                yield node.id

    def lacks_a_volume(self, workload: Workload) -> bool:
        """Whether one of its volumes is not to be had now, so that it runs nowhere."""
        return any(self._is_taken(workload, id_) for id_ in wanted_volumes(workload.spec))

    def _is_taken(self, workload: Workload, id_: VolumeId) -> bool:
        """Whether a volume is another workload's to write to, or an agent is removing it."""
        stored = self.mirror.get(Key.volume(id_))
        if stored is None or not isinstance(stored.value, Volume):
            return False
        holds = [e for e in self.mirror.values(Kind.ATTACHMENT, Attachment) if e.volume_id == id_]
        claim = stored.value.claim
        mine = is_exclusive_volume(wanted_volumes(workload.spec)[id_])
        wanted = wanted_volumes(workload.spec)[id_]
        if wanted.read_only or is_local(wanted.driver):
            return any(each.deletes_data for each in holds)
        others = {e.workload_id for e in holds if not e.read_only} if mine else set[WorkloadId]()
        others |= {claim.workload_id} if claim is not None else set()
        return bool(others - {workload.id}) or any(each.deletes_data for each in holds)

    def can_grow(self, workload: Workload, assignment: Assignment) -> bool:
        """Whether the node has room for what the present spec asks beyond what is held there."""
        node = self.mirror.node(assignment.node_id)
        if node is None:
            return False
        wanted = charge_for(PlacementRequest.of(workload), node).larger(assignment.charged)
        return (wanted - assignment.charged).fits_in(self._free(node))

    def _suits(self, workload: Workload, node: Node) -> bool:
        wishes = parse_constraints(workload.spec.metadata)
        return (
            node.is_schedulable
            and not node.intent.taints
            and self.mirror.tombstone(node.id, workload.id) is None
            and workload.spec.type in node.workload_types
            and drivers_of(workload.spec) <= node.storage_drivers
            and wishes.node_selector.items() <= node.labels.items()
            and node.id not in wishes.exclude_nodes
            and not any(self._runs(label, node, workload) for label in wishes.anti_affinity.items())
        )

    def _runs(self, label: Label, node: Node, workload: Workload) -> bool:
        """Whether another workload with this label is on the node."""
        return any(
            node_id == node.id and other != workload.id
            for node_id, other in self._runners.get(label, ())
        )

    def _fits(self, request: PlacementRequest, node: Node) -> bool:
        return charge_for(request, node).fits_in(self._free(node))

    def _free(self, node: Node) -> Resources:
        return node.allocatable - self.mirror.charges(node.id).charged

"""FleetFeed: keeps the columnar fleet equal to the view, change by change.

Also says when capacity may have become free or open, which is what wakes pending work (P04).
"""

from __future__ import annotations

from collections.abc import Callable

from persys_core.control.view import ClusterView
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.usage import NodeUsage
from persys_core.model.workload import Allocation, Assignment, Tombstone, Workload
from persys_core.placement.fleet import Fleet
from persys_core.placement.reservations import Reservations
from persys_core.ports.cluster_store import Key, Kind, Record, Versioned
from persys_core.ports.liveness import Liveness

__all__ = ["FleetFeed"]


class FleetFeed:
    """A view listener that feeds a fleet."""

    def __init__(
        self,
        view: ClusterView,
        fleet: Fleet,
        reservations: Reservations,
        liveness: Liveness,
        on_capacity: Callable[[], None],
    ) -> None:
        self._view = view
        self._fleet = fleet
        self._reservations = reservations
        self._liveness = liveness
        self._on_capacity = on_capacity
        view.listen(self._on_change)

    def set_alive(self, node_id: NodeId, *, alive: bool) -> None:
        """Liveness is not a record: the node monitor brings it, whether it changed or not."""
        if self._fleet.is_alive(node_id) is alive:
            return
        self._fleet.set_alive(node_id, alive)
        if alive:
            self._on_capacity()

    def is_alive(self, node_id: NodeId) -> bool:
        """Whether placement counts the node as alive; a change of its record may have ended that,
        so nobody keeps a copy of it."""
        return self._fleet.is_alive(node_id)

    def set_usage(self, usage: NodeUsage) -> None:
        """What a node measured of itself: it only scores, and ends by itself."""
        if self._view.node(usage.node_id) is not None:
            self._fleet.set_usage(usage)

    def _on_change(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        old = before.value if before else None
        new = after.value if after else None
        match key.kind:
            case Kind.NODE:
                self._node_changed(key.id, new)
            case Kind.ALLOCATION:
                self._allocation_changed(key.id, old, new)
            case Kind.TOMBSTONE:
                self._tombstone_changed(old, new)
            case Kind.ASSIGNMENT:
                self._assignment_changed(key.id, old, new)
            case Kind.WORKLOAD:
                self._labels_changed(key.id)
            case Kind.MARKER:
                self._relist()
            case _:
                pass

    def _node_changed(self, node_id: NodeId, node: Record | None) -> None:
        if not isinstance(node, Node):
            self._fleet.remove_node(node_id)
            return
        self._fleet.set_node(node)
        self._fleet.set_alive(node_id, self._liveness.is_alive(node_id))
        self._fleet.set_listed(node_id, self._is_listed(node))
        self._on_capacity()

    def _is_listed(self, node: Node) -> bool:
        marker = self._view.marker()
        return marker is not None and node.listed_under == marker.create_revision

    def _relist(self) -> None:
        for node in self._view.values(Kind.NODE, Node):
            self._fleet.set_listed(node.id, self._is_listed(node))

    def _allocation_changed(self, node_id: NodeId, old: Record | None, new: Record | None) -> None:
        allocation = new if isinstance(new, Allocation) else Allocation(node_id)
        self._fleet.set_allocation(allocation)
        if isinstance(old, Allocation) and not old.charged.fits_in(allocation.charged):
            self._on_capacity()

    def _tombstone_changed(self, old: Record | None, new: Record | None) -> None:
        if isinstance(new, Tombstone):
            self._fleet.add_tombstone(new.node_id, new.workload_id)
        elif isinstance(old, Tombstone):
            self._fleet.remove_tombstone(old.node_id, old.workload_id)
            self._on_capacity()

    def _assignment_changed(
        self, workload_id: WorkloadId, old: Record | None, new: Record | None
    ) -> None:
        if isinstance(old, Assignment) and not _still_holds(old, new):
            # Deleted, failed, completed or moved: nothing is on its way there any more.
            self._reservations.release(old.node_id, workload_id)
        if isinstance(new, Assignment):
            self._labels_changed(workload_id)
        else:
            self._fleet.remove_labels(workload_id)
            self._on_capacity()

    def _labels_changed(self, workload_id: WorkloadId) -> None:
        workload = self._view.workload(workload_id)
        assignment = self._view.assignment(workload_id)
        if workload is None or assignment is None or assignment.value.released:
            self._fleet.remove_labels(workload_id)
            return
        value: Workload = workload.value
        self._fleet.place_labels(workload_id, assignment.value.node_id, value.spec.metadata)


def _still_holds(old: Assignment, new: Record | None) -> bool:
    return isinstance(new, Assignment) and new.node_id == old.node_id and not new.released

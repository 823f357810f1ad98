"""Pending: the workloads that wait for a place or for more of it, in the order of their turn.

Kept by the view, so a replica that takes over knows them at once. Ordered by priority (higher
first), then age, then id, so that the same picture always gives the same order.
"""

from __future__ import annotations

from persys_core.control.view import ClusterView
from persys_core.model.constraints import parse_constraints
from persys_core.model.ids import WorkloadId
from persys_core.model.resources import CPU, DISK, MEMORY
from persys_core.model.workload import StatusRecord, Workload
from persys_core.placement.demand import demand_of
from persys_core.ports.cluster_store import Key, Kind, Record, Versioned
from persys_core.reconcile.situation import Outlook, outlook_of

__all__ = ["Pending"]

_PLAIN = {CPU, MEMORY, DISK}


class Pending:
    """A view listener that knows who waits."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._waiting: dict[WorkloadId, tuple[int, float, WorkloadId]] = {}
        view.listen(self._on_change)

    def in_turn(self) -> list[WorkloadId]:
        """The waiting workloads, first in turn first."""
        return sorted(self._waiting, key=self._waiting.__getitem__)

    def __len__(self) -> int:
        return len(self._waiting)

    def _on_change(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        if key.kind not in (Kind.WORKLOAD, Kind.STATUS, Kind.ASSIGNMENT):
            return
        workload = self._view.workload(key.id)
        status = self._view.status(key.id)
        if workload is None or status is None or not self._waits(workload.value, status.value):
            self._waiting.pop(key.id, None)
            return
        self._waiting[key.id] = _turn(workload.value)

    def _waits(self, workload: Workload, status: StatusRecord) -> bool:
        if outlook_of(workload, status) is not Outlook.RUN:
            return False
        assignment = self._view.assignment(workload.id)
        if assignment is None or assignment.value.released:
            return True
        # What a pool means differs per node; the reconciler looks closer than this.
        return bool(set(demand_of(workload.spec).shortfalls(assignment.value.charged)) & _PLAIN)


def _turn(workload: Workload) -> tuple[int, float, WorkloadId]:
    priority = parse_constraints(workload.spec.metadata).priority
    return -priority, workload.created_at.timestamp(), workload.id

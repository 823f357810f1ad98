"""Which workloads on a node would have to go somewhere else if the node is left, and which still
have to end there.

What rests, has ended or is being deleted needs no other place, so it holds up no drain; until it is
seen at rest, or gone, the node is not empty all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from persys_core.control.view import ClusterView
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.ports.cluster_store import Versioned
from persys_core.reconcile.situation import Outlook, outlook_of

__all__ = ["work_to_end", "work_to_leave"]


def work_to_leave(view: ClusterView, node_id: NodeId) -> list[Workload]:
    """The workloads on ``node_id`` that run or should, sorted by id."""
    return [
        workload for workload, status in _work_on(view, node_id) if _needs_a_place(workload, status)
    ]


def work_to_end(view: ClusterView, node_id: NodeId) -> frozenset[WorkloadId]:
    """What may still run on ``node_id`` and is to end there: old copies that are owed a delete, and
    what is being deleted or stopped."""
    ending = (
        workload.id
        for workload, status in _work_on(view, node_id)
        if _is_to_end(workload, status) and not _rests(status, view.assignment(workload.id))
    )
    return view.buried_at(node_id) | frozenset(ending)


def _work_on(view: ClusterView, node_id: NodeId) -> Iterator[tuple[Workload, StatusRecord]]:
    for workload_id in sorted(view.assigned_to(node_id)):
        workload, status = view.workload(workload_id), view.status(workload_id)
        if workload is not None and status is not None:
            yield workload.value, status.value


def _needs_a_place(workload: Workload, status: StatusRecord) -> bool:
    """What was imported runs as well, although only its user can have it moved."""
    match outlook_of(workload, status):
        case Outlook.RUN:
            return True
        case Outlook.WATCHED:
            return status.status is WorkloadStatus.RUNNING
        case _:
            return False


def _is_to_end(workload: Workload, status: StatusRecord) -> bool:
    return outlook_of(workload, status) not in (Outlook.RUN, Outlook.WATCHED)


def _rests(status: StatusRecord, assignment: Versioned[Assignment] | None) -> bool:
    """Whether it was seen at rest. One that failed may have an older revision that runs on."""
    if status.status is WorkloadStatus.FAILED:
        return assignment is None or assignment.value.released
    return status.status in (WorkloadStatus.STOPPED, WorkloadStatus.COMPLETED)

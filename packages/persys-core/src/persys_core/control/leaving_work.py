"""Which workloads on a node would have to go somewhere else if the node is left.

What rests, has ended or is being deleted needs no other place, so it holds up no drain.
"""

from __future__ import annotations

from persys_core.control.view import ClusterView
from persys_core.model.ids import NodeId
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import StatusRecord, Workload
from persys_core.reconcile.situation import Outlook, outlook_of

__all__ = ["work_to_leave"]


def work_to_leave(view: ClusterView, node_id: NodeId) -> list[Workload]:
    """The workloads on ``node_id`` that run or should, sorted by id."""
    leaving = []
    for workload_id in sorted(view.assigned_to(node_id)):
        workload, status = view.workload(workload_id), view.status(workload_id)
        if workload is None or status is None:
            continue
        if _needs_a_place(workload.value, status.value):
            leaving.append(workload.value)
    return leaving


def _needs_a_place(workload: Workload, status: StatusRecord) -> bool:
    """What was imported runs as well, although only its user can have it moved."""
    match outlook_of(workload, status):
        case Outlook.RUN:
            return True
        case Outlook.WATCHED:
            return status.status is WorkloadStatus.RUNNING
        case _:
            return False

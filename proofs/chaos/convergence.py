"""Rule 8: whether observed equals desired, from etcd and the machines alone."""

from __future__ import annotations

from collections.abc import Iterator

from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import Assignment, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import Key
from proofs.chaos.picture import Picture
from proofs.chaos.promises import Promises
from proofs.chaos.timelines import Timelines

__all__ = ["unfinished"]


def unfinished(
    picture: Picture, timelines: Timelines, promises: Promises
) -> Iterator[tuple[str, str]]:
    """What is not as it should be yet: workload ids with the reason, in words."""
    stored = {workload.id: workload for workload in picture.values(Workload)}
    for workload_id in sorted({*stored, *promises.by_id, *timelines.copies}):
        workload = stored.get(workload_id)
        wrong = promises.contradiction(workload_id, workload)
        wrong = wrong or _not_as_recorded(workload_id, workload, picture, timelines)
        if wrong:
            yield workload_id, wrong
    for grave in picture.values(Tombstone):
        yield grave.workload_id, f"{grave.node_id} still owes its delete ({grave.reason})"


def _not_as_recorded(
    workload_id: str, workload: Workload | None, picture: Picture, timelines: Timelines
) -> str:
    copies = timelines.running(workload_id)
    where = ", ".join(sorted(copy.node_id for copy in copies)) or "no node"
    if workload is None:
        return f"it is gone and runs on {where}" if copies else ""
    if workload.desired_state is DesiredState.DELETED:
        return "its deletion is not through"
    placed = picture.get(Key.assignment(workload_id))
    if not isinstance(placed, Assignment):
        return "it is assigned to no node"
    right = [(placed.node_id, workload.revision_id)]
    if [(copy.node_id, copy.revision_id) for copy in copies] != right:
        return f"it is assigned to {placed.node_id} and runs on {where}, or in another revision"
    status = picture.get(Key.status(workload_id))
    if not isinstance(status, StatusRecord) or status.status is not WorkloadStatus.RUNNING:
        shown = status.status if isinstance(status, StatusRecord) else "absent"
        return f"it runs and its status is {shown}"
    return ""

"""The keys of the work queue: a workload to reconcile, or an owed delete to see through."""

from __future__ import annotations

from attrs import frozen

from persys_core.model.ids import NodeId, WorkloadId

__all__ = ["Work", "tombstone_work", "workload_work"]


@frozen
class Work:
    """One key: ``node_id`` is empty for a workload, and names the ower of a tombstone."""

    workload_id: WorkloadId
    node_id: NodeId = ""

    def __str__(self) -> str:
        return f"{self.node_id}/{self.workload_id}" if self.node_id else self.workload_id


def workload_work(workload_id: WorkloadId) -> Work:
    """Reconcile this workload."""
    return Work(workload_id)


def tombstone_work(node_id: NodeId, workload_id: WorkloadId) -> Work:
    """See through the delete that this node owes."""
    return Work(workload_id, node_id)

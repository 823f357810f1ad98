"""The cluster summary as the wire shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from persys_core.control.answers import ClusterSummary, Freshness
from persys_core.model.replica import ReplicaRecord
from persys_core.model.states import NodeStatus, WorkloadStatus
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.times import timestamp
from persys_server.replica import shard_words

__all__ = ["summary_response"]

_PENDING = (
    WorkloadStatus.PENDING, WorkloadStatus.SCHEDULED, WorkloadStatus.UPDATING,
    WorkloadStatus.RETRY_PENDING, WorkloadStatus.UNKNOWN,
)  # fmt: skip
"""What is on its way: the counter of that name has room for all of it."""


def summary_response(summary: ClusterSummary, fresh: Freshness) -> pb.GetClusterSummaryResponse:
    """The answer to GetClusterSummary. A node is ready, draining or else not ready."""
    nodes, workloads = summary.nodes_by_status, summary.workloads_by_status
    total_nodes, ready = sum(nodes.values()), nodes.get(NodeStatus.READY, 0)
    draining = nodes.get(NodeStatus.DRAINING, 0)
    at = summary.standing
    return pb.GetClusterSummaryResponse(
        total_nodes=total_nodes,
        ready_nodes=ready,
        not_ready_nodes=total_nodes - ready - draining,
        draining_nodes=draining,
        total_workloads=sum(workloads.values()),
        running_workloads=workloads.get(WorkloadStatus.RUNNING, 0),
        pending_workloads=_sum(workloads, _PENDING),
        failed_workloads=workloads.get(WorkloadStatus.FAILED, 0),
        deleted_workloads=summary.deleted_workloads,
        generated_at=timestamp(summary.generated_at),
        store_revision=fresh.revision,
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
        mode=str(summary.mode),
        mode_reason="; ".join(filter(None, (summary.mode_reason, *summary.problems))),
        instance_id=summary.instance_id,
        role=at.role,
        leader_id=summary.leader_id,
        workloads_by_status={str(status): count for status, count in workloads.items()},
        ha_mode=str(at.ha_mode),
        shard=at.shard,
        replicas=[_replica(each) for each in at.replicas],
        owned_nodes=at.owned_nodes,
        unowned_nodes=at.unowned_nodes,
        doubly_owned_nodes=at.doubly_owned_nodes,
        foreign_leader=at.foreign_leader,
    )


def _replica(record: ReplicaRecord) -> pb.ReplicaView:
    return pb.ReplicaView(
        instance_id=record.instance_id,
        address=record.address,
        version=record.version,
        ha_mode=str(record.ha_mode),
        shard=shard_words(record),
        registered_at=timestamp(record.registered_at),
    )


def _sum(counts: Mapping[str, int], statuses: Iterable[WorkloadStatus]) -> int:
    return sum(counts.get(status, 0) for status in statuses)

"""Workloads as the wire shows them. No secret of a specification appears in any text (A04)."""

from __future__ import annotations

from collections.abc import Iterable

from persys_core.control.answers import ApplyAnswer, Freshness, WorkloadView
from persys_core.model.event import capped
from persys_core.model.ids import NodeId
from persys_core.model.secrets import scrubbed
from persys_core.model.spec import secret_values
from persys_core.model.usage import WorkloadUsage
from persys_core.model.workload import Reason
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.explanation_out import explanation
from persys_server.grpc.mapping.nodes_out import amounts
from persys_server.grpc.mapping.times import timestamp

__all__ = [
    "apply_response",
    "retry_response",
    "workload_list",
    "workload_response",
    "workload_view",
]


def workload_view(view: WorkloadView) -> pb.WorkloadView:
    """One workload: what is wanted, where it is, what became of it and why."""
    workload, status = view.workload, view.status
    secrets = secret_values(workload.spec)
    return pb.WorkloadView(
        workload_id=workload.id,
        type=str(workload.spec.type),
        desired_state=str(workload.desired_state),
        status=str(status.status) or "Unknown",
        assigned_node_id=view.assignment.node_id if view.assignment else "",
        revision_id=workload.revision_id,
        retry_attempts=status.retry.attempts,
        retry_max_attempts=view.max_attempts,
        retry_next_at=timestamp(status.retry.next_at),
        failure_reason=_failure(view, secrets),
        last_updated=timestamp(status.updated_at),
        reason=_reason(status.reason, secrets),
        usage=_usage(view.usage),
        created_at=timestamp(workload.created_at),
        client_revision_id=workload.client_revision_id,
        requested=amounts(workload.spec.resources),
    )


def workload_list(views: Iterable[WorkloadView], fresh: Freshness) -> pb.ListWorkloadsResponse:
    """The answer to ListWorkloads."""
    return pb.ListWorkloadsResponse(
        workloads=map(workload_view, views),
        store_revision=fresh.revision,
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
    )


def workload_response(view: WorkloadView, fresh: Freshness) -> pb.GetWorkloadResponse:
    """The answer to GetWorkload."""
    return pb.GetWorkloadResponse(
        workload=workload_view(view),
        store_revision=fresh.revision,
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
    )


def apply_response(answer: ApplyAnswer) -> pb.ApplyWorkloadResponse:
    """Stored is success, placed or not; the explanation says where it goes or why it waits."""
    return pb.ApplyWorkloadResponse(
        success=True,
        outcome=str(answer.outcome),
        revision_id=answer.revision_id,
        explanation=explanation(answer.explanation) if answer.explanation else None,
    )


def retry_response(left: NodeId) -> pb.RetryWorkloadResponse:
    """The answer to an accepted RetryWorkload; ``left``: the node whose local data was given up."""
    lost = (
        f"its local data on {left} is given up, so it may start elsewhere without" if left else ""
    )
    return pb.RetryWorkloadResponse(accepted=True, message=lost)


def _failure(view: WorkloadView, secrets: frozenset[str]) -> str:
    failure = view.status.failure
    if failure is None:
        return ""
    text = failure.message or failure.code
    return capped(scrubbed(text, secrets))


def _reason(reason: Reason | None, secrets: frozenset[str]) -> pb.ReasonDetail | None:
    if reason is None:
        return None
    return pb.ReasonDetail(
        code=reason.code,
        message=capped(scrubbed(reason.message, secrets)),
        last_transition=timestamp(reason.since),
        next_retry_at=timestamp(reason.next_try_at),
        retryable=reason.retryable,
    )


def _usage(usage: WorkloadUsage | None) -> pb.WorkloadUsageSnapshot | None:
    if usage is None:
        return None
    return pb.WorkloadUsageSnapshot(
        workload_id=usage.workload_id,
        type=usage.type,
        cpu_percent=usage.cpu_percent,
        memory_bytes=usage.memory_bytes,
        disk_read_bytes=usage.disk_read_bytes,
        disk_write_bytes=usage.disk_write_bytes,
        net_rx_bytes=usage.net_rx_bytes,
        net_tx_bytes=usage.net_tx_bytes,
        collected_at=timestamp(usage.collected_at),
        source=usage.source,
    )

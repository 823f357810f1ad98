"""The agent's side of `persys.control.v1`: registration and heartbeats.

Decided here: what of a heartbeat goes on the wire, and which of the scheduler's errors mean that
it does not know the node. When to call is the node's loop's decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources, unit_of
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.sim.faults import NoAnswerError
from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2 as wire

__all__ = ["ControlClient", "open_control_channel"]

_DEADLINE_SECONDS = 10.0
_WITHOUT_LEASE = datetime.max.replace(tzinfo=UTC)
_TYPE_ORDER = ("container", "compose", "vm", "microvm")
# Codes of ours in the enumeration's words; what it has no word for is a runtime error.
_REASONS = {
    "INVALID_IMAGE": wire.IMAGE_NOT_FOUND,
    "IMAGE_PULL_FAILED": wire.IMAGE_PULL_FAILED,
    "IMAGE_PULL_TIMEOUT": wire.IMAGE_PULL_FAILED,
    "IMAGE_PULL_AUTH_FAILED": wire.IMAGE_PULL_FAILED,
    "INVALID_SPECIFICATION": wire.INVALID_SPEC,
    "CLOUD_INIT_INVALID": wire.INVALID_SPEC,
    "RESOURCE_QUOTA_EXCEEDED": wire.INSUFFICIENT_RESOURCES,
    "INSUFFICIENT_RESOURCES": wire.INSUFFICIENT_RESOURCES,
    "STORAGE_FULL": wire.STORAGE_ERROR,
    "STORAGE_ATTACH_FAILED": wire.STORAGE_ERROR,
    "VOLUME_MOUNT_FAILED": wire.STORAGE_ERROR,
}
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


def open_control_channel(
    address: str,
    credentials: grpc.ChannelCredentials | None = None,
    more_options: tuple[tuple[str, str], ...] = (),
) -> grpc.aio.Channel:
    """A channel to the scheduler; many nodes of one process may share it."""
    options = (*_OPTIONS, *more_options)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


class ControlClient:
    """One node's calls to the scheduler; raises ``NoAnswerError`` where a call failed.

    ``allocated`` gives what the node has promised to its workloads.
    """

    def __init__(
        self, channel: grpc.aio.Channel, *, allocated: Callable[[], Resources] = Resources
    ) -> None:
        self._stub = agent_control_stub(channel)
        self._allocated = allocated
        self._lease = _WITHOUT_LEASE

    async def register(self, node: RegisterNode) -> RegisterAnswer:
        """RegisterNode."""
        message = wire.RegisterNodeRequest(
            node_id=node.node_id,
            capabilities=_capabilities(node),
            labels=node.labels,
            agent_version=node.agent_version,
            grpc_endpoint=node.endpoint,
            cluster_id=node.cluster_id,
            timestamp=_timestamp(datetime.now(UTC)),
            stop_after_seconds=node.stop_after_seconds,
            boot_id=node.boot_id,
        )
        try:
            answer = await self._stub.RegisterNode(message, timeout=_DEADLINE_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.ALREADY_EXISTS:
                reason = error.details() or "another agent has this node id"
                return RegisterAnswer(False, reason, timedelta(0), self._lease, id_taken=True)
            raise _no_answer("registration", error) from error
        self._lease = _WITHOUT_LEASE
        self._take_lease(answer)
        return RegisterAnswer(
            accepted=answer.accepted,
            reason=answer.reason,
            heartbeat_interval=timedelta(seconds=answer.heartbeat_interval_seconds),
            lease_expires_at=self._lease,
        )

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Heartbeat. An answer without a lease keeps the last one."""
        message = _heartbeat(beat, self._allocated())
        try:
            answer = await self._stub.Heartbeat(message, timeout=_DEADLINE_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return HeartbeatAnswer(False, False, self._lease, known=False)
            raise _no_answer("heartbeat", error) from error
        self._take_lease(answer)
        confirmed = (
            timedelta(seconds=answer.lease_confirmed_seconds)
            if answer.HasField("lease_confirmed_seconds")
            else None
        )
        return HeartbeatAnswer(
            answer.acknowledged, answer.drain_node, self._lease, confirmed=confirmed
        )

    def _take_lease(self, answer: wire.RegisterNodeResponse | wire.HeartbeatResponse) -> None:
        if answer.HasField("lease_expires_at"):
            self._lease = answer.lease_expires_at.ToDatetime(tzinfo=UTC)


def _no_answer(what: str, error: grpc.aio.AioRpcError) -> NoAnswerError:
    code = error.code()
    return NoAnswerError(
        f"{what} failed: {code.name}: {error.details() or 'no details'}",
        deadline_exceeded=code is grpc.StatusCode.DEADLINE_EXCEEDED,
    )


def _capabilities(node: RegisterNode) -> wire.NodeCapabilities:
    return wire.NodeCapabilities(
        cpu_total_millicores=node.capacity.cpu_millicores,
        memory_total_mb=node.capacity.memory_mb,
        storage_pools=[
            wire.StoragePool(name=pool.name, type=pool.type, total_gb=pool.total_gb)
            for pool in node.storage_pools
        ],
        supported_workload_types=[kind for kind in _TYPE_ORDER if kind in node.workload_types],
        supported_storage_drivers=sorted(node.storage_drivers),
        reserved=_amounts(node.reserved),
    )


def _amounts(resources: Resources) -> list[wire.ResourceAmount]:
    return [
        wire.ResourceAmount(name=name, amount=amount, unit=unit_of(name))
        for name, amount in resources
    ]


def _heartbeat(beat: Heartbeat, allocated: Resources) -> wire.HeartbeatRequest:
    return wire.HeartbeatRequest(
        node_id=beat.node_id,
        usage=_node_usage(beat.usage, allocated) if beat.usage else None,
        workload_statuses=list(_statuses(beat.reports)),
        timestamp=_timestamp(beat.sent_at) if beat.sent_at else None,
        workload_usage=[_usage(each) for each in beat.workload_usage],
        boot_id=beat.boot_id,
        sequence=beat.sequence,
    )


def _statuses(reports: Iterable[AgentReport]) -> Iterable[wire.WorkloadStatus]:
    for report in reports:
        failed = report.state is AgentState.FAILED
        reason = wire.ReasonDetail(
            code=report.failure_code,
            message=report.message if failed else "",
            retryable=report.metadata.get("retryable") == "true",
        )
        yield wire.WorkloadStatus(
            workload_id=report.workload_id,
            state=report.state,
            failure_reason=_failure_reason(report) if failed else wire.FAILURE_REASON_UNSPECIFIED,
            message=report.message,
            last_transition=_timestamp(report.reported_at) if report.reported_at else None,
            reason=reason if reason.ByteSize() else None,
            revision_id=report.revision_id,
        )


def _failure_reason(report: AgentReport) -> wire.FailureReason.ValueType:
    return _REASONS.get(report.failure_code, wire.RUNTIME_ERROR)


def _node_usage(usage: NodeUsage, allocated: Resources) -> wire.NodeUsage:
    return wire.NodeUsage(
        cpu_allocated_millicores=allocated.cpu_millicores,
        memory_allocated_mb=allocated.memory_mb,
        disk_allocated_gb=allocated.disk_gb,
        cpu_used_millicores=usage.used.cpu_millicores,
        memory_used_mb=usage.used.memory_mb,
        disk_used_gb=usage.used.disk_gb,
    )


def _usage(usage: WorkloadUsage) -> wire.WorkloadUsageSnapshot:
    return wire.WorkloadUsageSnapshot(
        workload_id=usage.workload_id,
        type=usage.type,
        cpu_percent=usage.cpu_percent,
        memory_bytes=usage.memory_bytes,
        disk_read_bytes=usage.disk_read_bytes,
        disk_write_bytes=usage.disk_write_bytes,
        net_rx_bytes=usage.net_rx_bytes,
        net_tx_bytes=usage.net_tx_bytes,
        collected_at=_timestamp(usage.collected_at),
        source=usage.source,
    )


def _timestamp(at: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(at)
    return stamp

"""Reports and tasks as messages of `persys.agent.v1`. Times are unix seconds, 0 where unset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from persys_agent.runtimes.port import ExecExit, ExecOutput, LogLine
from persys_agent.state.records import Task
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.model.usage import WorkloadUsage
from persys_proto.agent.v1 import agent_pb2 as wire

__all__ = ["action", "exec_response", "log_line", "ordered", "reported", "status"]

_TYPES = {
    WorkloadType.CONTAINER: wire.WORKLOAD_TYPE_CONTAINER,
    WorkloadType.COMPOSE: wire.WORKLOAD_TYPE_COMPOSE,
    WorkloadType.VM: wire.WORKLOAD_TYPE_VM,
    WorkloadType.MICROVM: wire.WORKLOAD_TYPE_MICROVM,
}
_STATES = {
    AgentState.PENDING: wire.ACTUAL_STATE_PENDING,
    AgentState.RUNNING: wire.ACTUAL_STATE_RUNNING,
    AgentState.STOPPED: wire.ACTUAL_STATE_STOPPED,
    AgentState.FAILED: wire.ACTUAL_STATE_FAILED,
    AgentState.UNKNOWN: wire.ACTUAL_STATE_UNKNOWN,
}
_DESIRED = {
    DesiredState.RUNNING: wire.DESIRED_STATE_RUNNING,
    DesiredState.STOPPED: wire.DESIRED_STATE_STOPPED,
}
_LAST_TRANSITION = "last_transition"


def status(
    report: AgentReport, now: datetime, usage: WorkloadUsage | None = None
) -> wire.WorkloadStatus:
    """A workload's status as it is at ``now``; since when, the metadata says."""
    metadata = dict(report.metadata)
    if report.reported_at is not None:
        metadata.setdefault(_LAST_TRANSITION, report.reported_at.isoformat())
    message = reported(report, now, metadata)
    if usage is not None:
        message.usage.CopyFrom(_usage(usage))
    return message


def reported(
    report: AgentReport, updated_at: datetime | None, metadata: Mapping[str, str]
) -> wire.WorkloadStatus:
    """A report with these words beside it."""
    return wire.WorkloadStatus(
        id=report.workload_id,
        type=_TYPES[report.type] if report.type else wire.WORKLOAD_TYPE_UNSPECIFIED,
        revision_id=report.revision_id,
        desired_state=(
            _DESIRED.get(report.desired_state, wire.DESIRED_STATE_UNSPECIFIED)
            if report.desired_state
            else wire.DESIRED_STATE_UNSPECIFIED
        ),
        actual_state=_STATES[report.state],
        message=report.message,
        created_at=_seconds(report.created_at),
        updated_at=_seconds(updated_at),
        metadata=metadata,
    )


def action(task: Task) -> wire.AgentAction:
    """One task of the history."""
    return wire.AgentAction(
        task_id=task.id,
        workload_id=task.workload_id,
        action_type=task.kind,
        status=task.state,
        error=task.error,
        created_at=_seconds(task.created_at),
        started_at=_seconds(task.started_at),
        ended_at=_seconds(task.ended_at),
    )


def log_line(line: LogLine) -> wire.LogLine:
    """One line of output."""
    return wire.LogLine(
        text=line.text,
        stream=line.stream,
        source=line.source,
        at_ms=int(line.at.timestamp() * 1000) if line.at else 0,
    )


def exec_response(item: ExecOutput | ExecExit) -> wire.ExecResponse:
    """What a command wrote, or how it ended."""
    if isinstance(item, ExecExit):
        return wire.ExecResponse(exit_code=item.code)
    if item.stream == "stderr":
        return wire.ExecResponse(stderr=item.data)
    return wire.ExecResponse(stdout=item.data)


def ordered(tasks: Iterable[Task], *, newest_first: bool, limit: int) -> list[Task]:
    """Tasks by when they were accepted; ``limit`` 0 gives all."""
    found = sorted(tasks, key=lambda task: task.serial, reverse=newest_first)
    return found[:limit] if limit > 0 else found


def _usage(usage: WorkloadUsage) -> wire.WorkloadUsageSnapshot:
    return wire.WorkloadUsageSnapshot(
        workload_id=usage.workload_id,
        type=_TYPES[WorkloadType(usage.type)],
        cpu_percent=usage.cpu_percent,
        memory_bytes=usage.memory_bytes,
        disk_read_bytes=usage.disk_read_bytes,
        disk_write_bytes=usage.disk_write_bytes,
        net_rx_bytes=usage.net_rx_bytes,
        net_tx_bytes=usage.net_tx_bytes,
        collected_at=_seconds(usage.collected_at),
        source=usage.source,
    )


def _seconds(at: datetime | None) -> int:
    return int(at.timestamp()) if at else 0

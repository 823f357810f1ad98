"""What agents answer, in the core's words: reports, refusals and silence.

Decided here: which gRPC status means that nobody answered, that the agent said no, and that it
does not have the workload; and how much of an agent's text is kept. Agents answer most errors as
status UNKNOWN with a text, so texts have to be looked at, here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime

import grpc
import grpc.aio

from persys_core.model.node import Node
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.secrets import scrubbed
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.agents import NotFound, Refused, Unreachable
from persys_proto.agent.v1 import agent_pb2 as wire

__all__ = ["clean", "failure", "is_unknown_to_agent", "refusal", "report"]

_MAX_TEXT = 8192
_CODE = re.compile(r"\[([A-Z][A-Z_]+)\]")
_STATUS_NOT_FOUND = "status not found"
_WORKLOAD_NOT_FOUND = "workload not found"
_FAILED_DELETE = "failed to delete workload"

_STATES = {
    wire.ACTUAL_STATE_UNSPECIFIED: AgentState.UNKNOWN,
    wire.ACTUAL_STATE_PENDING: AgentState.PENDING,
    wire.ACTUAL_STATE_RUNNING: AgentState.RUNNING,
    wire.ACTUAL_STATE_STOPPED: AgentState.STOPPED,
    wire.ACTUAL_STATE_FAILED: AgentState.FAILED,
    wire.ACTUAL_STATE_UNKNOWN: AgentState.UNKNOWN,
}
_TYPES = {
    wire.WORKLOAD_TYPE_CONTAINER: WorkloadType.CONTAINER,
    wire.WORKLOAD_TYPE_COMPOSE: WorkloadType.COMPOSE,
    wire.WORKLOAD_TYPE_VM: WorkloadType.VM,
    wire.WORKLOAD_TYPE_MICROVM: WorkloadType.MICROVM,
}
_DESIRED = {
    wire.DESIRED_STATE_RUNNING: DesiredState.RUNNING,
    wire.DESIRED_STATE_STOPPED: DesiredState.STOPPED,
}
_TASKS = {status.value: status for status in TaskStatus}
_SILENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)


def report(status: wire.WorkloadStatus, secrets: Collection[str] = ()) -> AgentReport:
    """One workload's status. States and types that are not known read as unknown and none."""
    metadata = {key: clean(value, secrets) for key, value in status.metadata.items()}
    return AgentReport(
        workload_id=status.id,
        state=_STATES.get(status.actual_state, AgentState.UNKNOWN),
        revision_id=status.revision_id,
        type=_TYPES.get(status.type),
        desired_state=_DESIRED.get(status.desired_state),
        message=clean(status.message, secrets),
        failure_code=metadata.get("failure_reason", ""),
        task_status=_TASKS.get(metadata.get("task_status", ""), TaskStatus.NONE),
        reported_at=_instant(status.updated_at),
        created_at=_instant(status.created_at),
        metadata=metadata,
    )


def failure(
    node: Node, error: grpc.aio.AioRpcError, secrets: Collection[str] = ()
) -> NotFound | Refused | Unreachable:
    """What an error status stands for."""
    code, text = error.code(), clean(error.details() or "", secrets)
    if code in _SILENT:
        return Unreachable(
            f"node {node.id} at {node.endpoint}: {text or code.name.lower()}",
            deadline_exceeded=code is grpc.StatusCode.DEADLINE_EXCEEDED,
        )
    if code is grpc.StatusCode.NOT_FOUND or _STATUS_NOT_FOUND in text:
        return NotFound()
    if code is grpc.StatusCode.UNKNOWN:
        return refusal(text)
    return Refused(text or code.name.lower(), code.name.lower())


def refusal(text: str, secrets: Collection[str] = ()) -> Refused:
    """A "no" of the agent; its code is the ``[CODE]`` in the text, in lower case."""
    text = clean(text, secrets)
    found = _CODE.search(text)
    return Refused(text, found[1].lower() if found else "rejected")


def is_unknown_to_agent(text: str) -> bool:
    """Whether the text only says that a delete found nothing to delete."""
    return text.startswith(_FAILED_DELETE) and _WORKLOAD_NOT_FOUND in text


def clean(text: str, secrets: Collection[str]) -> str:
    """An agent's text without secrets; of one that is too long the end is kept."""
    text = scrubbed(text, secrets)
    return text if len(text) <= _MAX_TEXT else "…" + text[-_MAX_TEXT:]


def _instant(seconds: int) -> datetime | None:
    """Agents send a large negative number for an instant that never was."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
    except (OverflowError, ValueError, OSError):
        return None

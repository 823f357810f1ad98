"""What an agent answers, in the core's own words; adapters translate the wire into these.

Unreachable, refused and not-found are three different things (architecture §4): the first two are
values in ``ports.agents``, the third is ``ObservedState.MISSING`` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from persys_core.model.ids import RevisionId, WorkloadId
from persys_core.model.mappings import text_map
from persys_core.model.states import DesiredState, WorkloadType

__all__ = ["AgentReport", "AgentState", "TaskStatus"]


class AgentState(StrEnum):
    """The actual state as agents send it, already mapped from enums and texts."""

    PENDING = "Pending"
    RUNNING = "Running"
    STOPPED = "Stopped"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class TaskStatus(StrEnum):
    """The agent's task that is in flight for a workload; only GetWorkloadStatus shows it."""

    NONE = ""
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@frozen
class AgentReport:
    """One workload as its agent reported it, by status query, listing or heartbeat.

    ``revision_id`` is empty where an old agent's heartbeat does not carry it: then the report is
    a hint (decisions §2.10). ``created_at``: since when the agent has it; heartbeats do not say.
    ``metadata`` holds the agent's own words (``last_error``,
    ``failure_reason``, ``container.exit_code`` …).
    """

    workload_id: WorkloadId
    state: AgentState
    revision_id: RevisionId = ""
    type: WorkloadType | None = None
    desired_state: DesiredState | None = None
    message: str = ""
    failure_code: str = ""
    task_status: TaskStatus = TaskStatus.NONE
    reported_at: datetime | None = None
    created_at: datetime | None = None
    metadata: Mapping[str, str] = field(factory=dict, converter=text_map)

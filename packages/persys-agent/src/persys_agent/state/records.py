"""The values that the agent keeps on its disk.

Decided here: what is remembered of a workload and of a task. What a runtime says of a workload is
not remembered, since the runtime is asked; only when that last changed is.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from persys_agent.runtimes.port import AttachedVolume
from persys_core.model.ids import RevisionId, WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, WorkloadType

__all__ = ["Condition", "Sight", "Task", "TaskKind", "TaskState", "Workload"]


@frozen
class Condition:
    """The last operation that failed; it stands beside the runtime's state until one succeeds.

    ``code`` is the cause's code, ``text`` the whole error without secrets. ``operation`` says
    what failed: ``apply``, ``delete``, or ``repair`` (the agent's own doing).
    """

    code: str
    text: str
    at: datetime
    retryable: bool
    operation: str = "apply"


@frozen
class Sight:
    """The state that was last seen of a workload, and since when."""

    state: AgentState
    since: datetime


@frozen
class Workload:
    """One workload that the agent was given.

    ``request`` is the ApplyWorkload message as JSON. ``desired_state`` DELETED: a delete has begun
    and is not finished; ``delete_volumes`` then says whether the data goes too. ``is_settled``:
    this revision was brought about once, so the agent keeps it so by itself; until then the
    scheduler decides whether it is tried again. ``has_ended``: it ended by itself and rests,
    even where the runtime has lost it since. ``attached``: the volumes that are mounted for it.
    ``requested``: what admission counts.
    """

    id: WorkloadId
    type: WorkloadType
    revision_id: RevisionId
    spec_hash: str
    desired_state: DesiredState
    request: str
    requested: Resources
    created_at: datetime
    updated_at: datetime
    is_settled: bool = False
    has_ended: bool = False
    delete_volumes: bool = False
    attached: tuple[AttachedVolume, ...] = ()
    condition: Condition | None = None
    sight: Sight | None = None


class TaskKind(StrEnum):
    """What a task does; the words of ListActions."""

    APPLY = "apply_workload"
    DELETE = "delete_workload"


class TaskState(StrEnum):
    """How far a task is; ``SUPERSEDED`` never began, since a newer one made it pointless."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SUPERSEDED = "superseded"


@frozen
class Task:
    """One accepted request. ``serial`` orders tasks as they were accepted.

    ``request``: the ApplyWorkload message as JSON; empty for a delete, whose only choice is
    ``delete_volumes``.
    """

    serial: int
    id: str
    kind: TaskKind
    workload_id: WorkloadId
    created_at: datetime
    request: str = ""
    revision_id: RevisionId = ""
    delete_volumes: bool = False
    state: TaskState = TaskState.PENDING
    error: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether its outcome is still to come."""
        return self.state in (TaskState.PENDING, TaskState.RUNNING)

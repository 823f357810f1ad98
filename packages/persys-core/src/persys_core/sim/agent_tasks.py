"""The task queue of a simulated agent: what was accepted, what runs, what became of it.

Decided here: when a task starts. A task waits to be picked up, then needs a worker, then the lock
of its workload. With ``TaskOrder.ANY`` pick-up times are all that orders two tasks of one
workload, so they may run in reverse; with ``FIFO`` a task is not even picked up before the
previous one of its workload ended. When the queue is full the call carries its task out itself.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import TypeAlias

from attrs import define, field

from persys_core.model.ids import WorkloadId
from persys_core.model.observation import TaskStatus
from persys_core.sim.agent_agenda import Agenda
from persys_core.sim.agent_settings import AgentSettings, TaskOrder

__all__ = ["APPLY_TASK", "DELETE_TASK", "AgentTask", "Done", "TaskQueue"]

APPLY_TASK = "apply_workload"
DELETE_TASK = "delete_workload"
_UNFINISHED = (TaskStatus.PENDING, TaskStatus.RUNNING)

Done: TypeAlias = Callable[[str, datetime], None]
"""Called once when a task ended, with its error text (empty for success) and the instant."""
Work: TypeAlias = Callable[["AgentTask", datetime, Done], None]
"""What a task does once it has its workload's lock."""


@define(eq=False)
class AgentTask:
    """One accepted request. ``skipped``: the agent found nothing to do."""

    id: str
    kind: str
    workload_id: WorkloadId
    created_at: datetime
    work: Work
    status: TaskStatus = TaskStatus.PENDING
    error: str = ""
    skipped: bool = False
    inline: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the outcome is known."""
        return self.status not in _UNFINISHED


@define(eq=False)
class _Lock:
    holder: Hashable
    waiting: deque[AgentTask] = field(factory=deque)


class TaskQueue:
    """Workers, locks and the history, which like the agents' is in memory and never pruned."""

    def __init__(self, settings: AgentSettings, agenda: Agenda, rng: random.Random) -> None:
        self._settings = settings
        self._agenda = agenda
        self._rng = rng
        self._serial = itertools.count()
        self.history: list[AgentTask] = []
        self._newest: dict[WorkloadId, AgentTask] = {}
        self._accepted = 0
        self._working = 0
        self._backlog: deque[AgentTask] = deque()
        self._behind: dict[WorkloadId, deque[AgentTask]] = {}
        self._locks: dict[WorkloadId, _Lock] = {}

    def submit(self, kind: str, workload_id: WorkloadId, work: Work, now: datetime) -> AgentTask:
        """Accept a task. ``inline`` of the answer: the call itself must wait for its end."""
        task = AgentTask(self._task_id(kind, workload_id, now), kind, workload_id, now, work)
        self.history.append(task)
        self._newest[workload_id] = task
        if self._accepted >= self._settings.queue_depth:
            task.inline = True
            self._begin(task, now)
        else:
            self._accepted += 1
            self._line_up(task, now)
        return task

    def newest(self, workload_id: WorkloadId) -> AgentTask | None:
        """The task of this workload that was created last."""
        return self._newest.get(workload_id)

    def hold(self, workload_id: WorkloadId) -> bool:
        """Take the workload's lock for work that is no task; false while a task has it."""
        if workload_id in self._locks:
            return False
        self._locks[workload_id] = _Lock("local")
        return True

    def release(self, workload_id: WorkloadId, now: datetime) -> None:
        """Give the lock to the next task that waits for it."""
        lock = self._locks[workload_id]
        if lock.waiting:
            lock.holder = following = lock.waiting.popleft()
            self._work(following, now)
        else:
            del self._locks[workload_id]

    def _task_id(self, kind: str, workload_id: WorkloadId, now: datetime) -> str:
        nanoseconds = int(now.timestamp() * 1_000_000) * 1000 + next(self._serial)
        return f"{kind.partition('_')[0]}-{workload_id}-{nanoseconds}"

    def _line_up(self, task: AgentTask, now: datetime) -> None:
        if self._settings.task_order is TaskOrder.ANY:
            self._plan_pickup(task, now)
        elif (behind := self._behind.get(task.workload_id)) is not None:
            behind.append(task)
        else:
            self._behind[task.workload_id] = deque()
            self._plan_pickup(task, now)

    def _plan_pickup(self, task: AgentTask, now: datetime) -> None:
        wait = self._settings.pickup.at(self._rng.random())
        self._agenda.at(now + wait, lambda at: self._pick_up(task, at))

    def _pick_up(self, task: AgentTask, now: datetime) -> None:
        if self._working >= self._settings.workers:
            self._backlog.append(task)
            return
        self._working += 1
        self._accepted -= 1
        self._begin(task, now)

    def _begin(self, task: AgentTask, now: datetime) -> None:
        task.status, task.started_at = TaskStatus.RUNNING, now
        lock = self._locks.get(task.workload_id)
        if lock:
            lock.waiting.append(task)
        else:
            self._locks[task.workload_id] = _Lock(task)
            self._work(task, now)

    def _work(self, task: AgentTask, now: datetime) -> None:
        task.work(task, now, lambda error, at: self._finish(task, error, at))

    def _finish(self, task: AgentTask, error: str, now: datetime) -> None:
        task.status = TaskStatus.FAILED if error else TaskStatus.COMPLETED
        task.error, task.ended_at = error, now
        if not task.inline:
            self._working -= 1
        self.release(task.workload_id, now)
        self._line_forward(task.workload_id, now)
        if self._backlog and self._working < self._settings.workers:
            self._pick_up(self._backlog.popleft(), now)

    def _line_forward(self, workload_id: WorkloadId, now: datetime) -> None:
        behind = self._behind.get(workload_id)
        if behind:
            self._plan_pickup(behind.popleft(), now)
        elif behind is not None:
            del self._behind[workload_id]

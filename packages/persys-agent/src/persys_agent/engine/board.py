"""``StatusBoard``: the reports of all workloads, or of one, as they are now.

Decided here: what is asked to tell it. A listing asks each runtime once. What is in flight shows
the same in a listing, a heartbeat and a single status (agent defect 9). What changed while a
runtime was answering is told as in flight, since the answer may be older than the change.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from datetime import datetime

import structlog
from attrs import evolve, frozen

from persys_agent.engine.inventory import Inventory, Look, Seen, Unanswered, server_of
from persys_agent.engine.repair import is_at_rest, is_same
from persys_agent.engine.view import orphan_report, report, state_of, task_report
from persys_agent.engine.wishes import spec_kept, wish_kept
from persys_agent.runtimes.port import Instance
from persys_agent.specs import BadSpecError
from persys_agent.state.lock import StateError
from persys_agent.state.records import Sight, Task, TaskKind, TaskState, Workload
from persys_agent.state.store import AgentState
from persys_agent.tasks.queue import TaskQueue
from persys_core.model.errors import PersysError
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentReport
from persys_core.model.states import WorkloadType
from persys_core.ports.clock import Clock

__all__ = ["NothingKnownError", "StatusBoard"]


class NothingKnownError(PersysError):
    """A runtime that may hold the workload does not answer: it can be neither shown nor denied."""


@frozen
class _Before:
    row: Workload
    task: Task | None


class StatusBoard:
    """``orphans`` are the instances of ours without a record, as last seen."""

    def __init__(
        self, state: AgentState, queue: TaskQueue, inventory: Inventory, clock: Clock
    ) -> None:
        self._state = state
        self._queue = queue
        self._inventory = inventory
        self._clock = clock
        self.orphans: dict[tuple[WorkloadType, WorkloadId], Instance] = {}

    async def reports(self, kind: WorkloadType | None = None) -> Sequence[AgentReport]:
        """Everything that this node has of that kind, in the order of ids."""
        before = self._snapshot()
        look = await self._inventory.look(None if kind is None else frozenset({kind}))
        await self.note(
            (each.row, look.of(each.row.type, each.row.id))
            for each in before.values()
            if kind in (None, each.row.type)
        )
        told = [
            self._told(each, look.of(each.row.type, each.row.id))
            for each in before.values()
            if kind in (None, each.row.type)
        ]
        self.note_orphans(look, before)
        now = self._clock.now()
        strays = [
            orphan_report(its_kind, instance, now)
            for (its_kind, name), instance in self.orphans.items()
            if kind in (None, its_kind) and self._queue.open_task(name) is None
        ]
        accepted = [
            task_report(task, _kind_of(task))
            for task in self._queue.open_tasks()
            if self._state.get(task.workload_id) is None and kind in (None, _kind_of(task))
        ]
        found = [*(each for each in told if each is not None), *strays, *accepted]
        return sorted(found, key=lambda each: each.workload_id)

    async def report(self, workload_id: WorkloadId) -> AgentReport | None:
        """One workload; ``None`` where this node does not have it. Raises ``NothingKnownError``."""
        row = self._state.get(workload_id)
        if row is None:
            return await self._unrecorded(workload_id)
        task = self._queue.open_task(workload_id)
        seen: Seen = None
        if task is None:
            seen = await self._inventory.see(row.type, workload_id)
        await self.note([(row, seen)])
        told = self._told(_Before(row, task), seen)
        return told if told is not None else await self._unrecorded(workload_id)

    def is_orphan(self, workload_id: WorkloadId) -> bool:
        """Whether it was last seen here without a record."""
        return any(name == workload_id for _, name in self.orphans)

    def note_orphans(self, look: Look, before: Container[WorkloadId]) -> None:
        """Take in what a look shows of instances without a record; ``before`` are those that had
        one when it began.

        Those of a runtime that is silent stay: nobody said that they are gone.
        """
        silent = {kind for kind, found in look.found.items() if isinstance(found, Unanswered)} | (
            self._state.kinds_used - look.found.keys()
        )
        seen = {
            (kind, instance.workload_id): instance
            for kind, instance in look.instances()
            if self._is_orphan(instance.workload_id, before)
        }
        kept = {
            key: instance
            for key, instance in self.orphans.items()
            if key[0] in silent and self._is_orphan(key[1], before)
        }
        for kind, workload_id in seen.keys() - self.orphans.keys():
            structlog.get_logger().warning(
                "orphan: an instance of ours that nobody asked for; it is left alone until the"
                " scheduler deletes it",
                workload=workload_id,
                type=str(kind),
            )
        self.orphans = {**kept, **seen}

    def _is_orphan(self, workload_id: WorkloadId, before: Container[WorkloadId]) -> bool:
        """Whether nobody gave it to us, neither now nor when the look began."""
        return workload_id not in before and self._state.get(workload_id) is None

    def _snapshot(self) -> dict[WorkloadId, _Before]:
        return {row.id: _Before(row, self._queue.open_task(row.id)) for row in self._state}

    def _told(self, before: _Before, seen: Seen) -> AgentReport | None:
        """The report of a row that was there before the runtime was asked."""
        row = self._state.get(before.row.id)
        if row is None:
            return None
        task = self._queue.open_task(row.id) or before.task
        if task is None and row.updated_at != before.row.updated_at:
            task = self._queue.history.newest(row.id)
        if task is not None:
            task = task if task.is_open else evolve(task, state=TaskState.RUNNING)
            return report(row, seen, task, _since(row))
        return report(row, seen, None, _since(row))

    async def note(self, seen: Iterable[tuple[Workload, Seen]]) -> None:
        """Remember of rows that are still as they were since when they are in the state that is
        seen now, and that they ended."""
        now = self._clock.now()
        changed = [
            noted
            for row, sight in seen
            if self._is_at_rest(row) and (noted := _noted(row, sight, now)) is not row
        ]
        if changed:
            with suppress(StateError):  # a disk that fails must not make the node look dead
                await self._state.save(*changed)

    def _is_at_rest(self, row: Workload) -> bool:
        """Whether nothing has happened to it since the look began."""
        return self._state.get(row.id) is row and self._queue.open_task(row.id) is None

    async def _unrecorded(self, workload_id: WorkloadId) -> AgentReport | None:
        """Of what has no record, the open task tells, else the runtimes: an earlier failure of a
        delete says nothing of what is there now (agent defect 10)."""
        task = self._queue.open_task(workload_id)
        if task is not None:
            return task_report(task, _kind_of(task))
        for kind in sorted(self._state.kinds_used):
            seen = await self._inventory.see(kind, workload_id)
            if isinstance(seen, Unanswered):
                raise NothingKnownError(
                    f"{server_of(kind)} does not answer, so nothing is known of {workload_id}"
                )
            if seen is not None:
                return orphan_report(kind, seen, self._clock.now())
        return None


def _noted(row: Workload, seen: Seen, now: datetime) -> Workload:
    noted, state = row, state_of(row, seen)
    if row.sight is None or row.sight.state is not state:
        noted = evolve(row, sight=Sight(state, now))
    if not row.has_ended and isinstance(seen, Instance) and _rests(row, seen):
        noted = evolve(noted, has_ended=True)
    return noted


def _rests(row: Workload, seen: Instance) -> bool:
    spec = spec_kept(row)
    return spec is not None and is_same(row, seen) and is_at_rest(seen, spec)


def _since(row: Workload) -> datetime:
    return row.sight.since if row.sight is not None else row.updated_at


def _kind_of(task: Task) -> WorkloadType | None:
    """The type that is applied; ``None`` of a delete, and of what cannot be read any more."""
    try:
        return wish_kept(task.request).spec.type if task.kind is TaskKind.APPLY else None
    except BadSpecError:
        return None

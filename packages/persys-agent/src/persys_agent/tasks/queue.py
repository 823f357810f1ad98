"""``TaskQueue``: one line of tasks per workload.

Decided here: the order in which accepted requests are carried out. Tasks of one workload run one
after the other, as they were accepted; a task that has not begun is superseded by a later one that
makes it pointless (an apply by any later request, a delete by a later delete), so a line is never
longer than three. Tasks of different workloads run beside each other, at most ``workers`` at once.
A task is on disk before its caller is answered, and what a process left open is carried on by the
next one, so work has to be idempotent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeAlias

import structlog
from attrs import define, evolve, field

from persys_agent.state.lock import StateError
from persys_agent.state.records import Task, TaskKind, TaskState
from persys_agent.state.store import AgentState
from persys_agent.tasks.history import TaskHistory
from persys_core.model.ids import WorkloadId
from persys_core.ports.clock import Clock

__all__ = ["TaskQueue", "Work"]

Work: TypeAlias = Callable[[Task], Awaitable[str]]
"""Carries a task out; returns its error text, empty for success. Whatever it raises is a bug."""

_VERBS = {TaskKind.APPLY: "apply", TaskKind.DELETE: "delete"}


@define
class _Door:
    lock: asyncio.Lock = field(factory=asyncio.Lock)
    users: int = 0


class TaskQueue:
    """Works from ``start`` to ``stop``; ``history`` has every task that is still known."""

    def __init__(
        self,
        state: AgentState,
        work: Work,
        clock: Clock,
        *,
        workers: int = 10,
        history_limit: int = 1000,
        on_ended: Callable[[Task], None] = lambda _: None,
    ) -> None:
        """``on_ended`` is told of every task that was carried out."""
        self.errors = 0
        """Bugs in the work; tests expect none."""
        self.history = TaskHistory(state.loaded_tasks, limit=history_limit)
        self._state = state
        self._work = work
        self._clock = clock
        self._workers = workers
        self._on_ended = on_ended
        self._serial = self.history.next_serial
        self._lines: dict[WorkloadId, deque[Task]] = {}
        self._held: set[WorkloadId] = set()
        self._barred: set[int] = set()
        """Serials of what is about to be superseded: they may not begin any more."""
        self._surplus: tuple[int, ...] = self.history.prune()
        """Serials that the next write takes off the disk."""
        self._running: set[asyncio.Task[None]] = set()
        self._doors: dict[WorkloadId, _Door] = {}
        self._pending_writes: set[asyncio.Task[Task]] = set()
        self._is_started = False

    def start(self) -> None:
        """Begin, with what an earlier process left open."""
        for task in self.history.find():
            if task.is_open:
                self._lines.setdefault(task.workload_id, deque()).append(task)
        self._is_started = True
        self._pump()

    async def stop(self) -> None:
        """Stop in the middle of whatever runs; it is carried on after the next start."""
        self._is_started = False
        await asyncio.gather(*self._pending_writes, return_exceptions=True)
        running = tuple(self._running)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @property
    def depth(self) -> int:
        """How many tasks are open."""
        return sum(map(len, self._lines.values()))

    def open_task(self, workload_id: WorkloadId) -> Task | None:
        """The newest task of a workload if its outcome is still to come."""
        line = self._lines.get(workload_id)
        return line[-1] if line else None

    def open_tasks(self) -> tuple[Task, ...]:
        """The newest open task of each workload that has one."""
        return tuple(line[-1] for line in self._lines.values())

    async def submit(
        self,
        kind: TaskKind,
        workload_id: WorkloadId,
        *,
        request: str = "",
        revision_id: str = "",
        delete_volumes: bool = False,
    ) -> Task:
        """Accept a request; it is on disk when this returns. Raises ``StateError``.

        A caller that gives up meanwhile leaves it accepted.
        """
        task = Task(
            0, "", kind, workload_id, self._clock.now(), request, revision_id, delete_volumes
        )
        accepting = asyncio.create_task(self._accept(task))
        self._pending_writes.add(accepting)
        accepting.add_done_callback(self._pending_writes.discard)
        return await asyncio.shield(accepting)

    async def exclusively(
        self, workload_id: WorkloadId, work: Callable[[], Awaitable[None]]
    ) -> bool:
        """Do ``work`` while no task of this workload runs; false, and nothing, where one is open.

        Tasks that are accepted meanwhile wait.
        """
        if workload_id in self._held or workload_id in self._lines:
            return False
        self._held.add(workload_id)
        try:
            await work()
        finally:
            self._held.discard(workload_id)
            self._pump()
        return True

    async def _accept(self, wish: Task) -> Task:
        async with self._door(wish.workload_id):
            line = self._lines.get(wish.workload_id, deque())
            pointless = _pointless(line, wish.kind)
            task = self._numbered(wish, pointless)
            ended = [
                evolve(
                    each,
                    state=TaskState.SUPERSEDED,
                    ended_at=wish.created_at,
                    error=f"superseded by {task.id}",
                )
                for each in pointless
            ]
            self._barred.update(each.serial for each in pointless)
            try:
                await self._record(*ended, task)
                self._line_up(task, pointless)
            finally:
                self._barred.difference_update(each.serial for each in pointless)
                self._pump()
            return task

    @asynccontextmanager
    async def _door(self, workload_id: WorkloadId) -> AsyncIterator[None]:
        """Requests for one workload are taken in one after the other."""
        door = self._doors.setdefault(workload_id, _Door())
        door.users += 1
        try:
            async with door.lock:
                yield
        finally:
            door.users -= 1
            if not door.users:
                del self._doors[workload_id]

    def _numbered(self, wish: Task, pointless: Iterable[Task]) -> Task:
        serial, self._serial = self._serial, self._serial + 1
        nanoseconds = int(wish.created_at.timestamp() * 1_000_000) * 1000 + serial % 1000
        return evolve(
            wish,
            serial=serial,
            id=f"{_VERBS[wish.kind]}-{wish.workload_id}-{nanoseconds}",
            delete_volumes=wish.delete_volumes or any(each.delete_volumes for each in pointless),
        )

    def _line_up(self, task: Task, pointless: Iterable[Task]) -> None:
        line = self._lines.setdefault(task.workload_id, deque())
        for each in pointless:
            line.remove(each)
        line.append(task)

    def _pump(self) -> None:
        """Begin what may begin: the head of each line whose workload is free."""
        if not self._is_started:
            return
        for workload_id, line in self._lines.items():
            if len(self._running) >= self._workers:
                return
            if workload_id in self._held or line[0].serial in self._barred:
                continue
            self._held.add(workload_id)
            head = line[0]
            line[0] = evolve(
                head, state=TaskState.RUNNING, started_at=head.started_at or self._clock.now()
            )
            running = asyncio.create_task(self._run(line[0], line), name=head.id)
            self._running.add(running)
            running.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._running.discard(running)
        if not running.cancelled() and (error := running.exception()):
            structlog.get_logger().error("a task's outcome was lost", error=repr(error))
        self._pump()

    async def _run(self, task: Task, line: deque[Task]) -> None:
        try:
            self.history.put(task)  # not written: an open task is begun again, however far it was
            error = await self._worked(task)
            state = TaskState.FAILED if error else TaskState.COMPLETED
            ended = evolve(task, state=state, error=error, ended_at=self._clock.now())
            await self._record(ended)
            self._on_ended(ended)
        finally:
            if self._is_started:
                self._release(task, line)

    async def _worked(self, task: Task) -> str:
        try:
            return await self._work(task)
        except StateError:
            raise  # nothing can be noted now: the next process carries it on
        except Exception as error:
            self.errors += 1
            structlog.get_logger().exception("bug: a task failed in an unknown way", task=task.id)
            return f"[SYSTEM_ERROR] {type(error).__name__} (workload: {task.workload_id})"

    def _release(self, task: Task, line: deque[Task]) -> None:
        """Go on with the next one, even where the disk failed: nothing may hold a line up."""
        line.popleft()
        self._held.discard(task.workload_id)
        if not line:
            del self._lines[task.workload_id]

    async def _record(self, *tasks: Task) -> None:
        surplus, self._surplus = self._surplus, ()
        await self._state.save_tasks(tasks, surplus)
        for task in tasks:
            self.history.put(task)
        self._surplus += self.history.prune()


def _pointless(line: deque[Task], kind: TaskKind) -> list[Task]:
    """What of a line a new task of ``kind`` supersedes, from its end backwards."""
    found: list[Task] = []
    for task in reversed(line):
        if task.state is not TaskState.PENDING:
            break
        if kind is TaskKind.APPLY and task.kind is TaskKind.DELETE:
            break
        found.append(task)
    return found[::-1]

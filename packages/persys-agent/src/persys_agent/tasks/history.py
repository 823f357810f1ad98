"""The tasks that are known: those still open, and a bounded number of those that ended."""

from __future__ import annotations

from collections.abc import Iterable

from persys_agent.state.records import Task
from persys_core.model.ids import WorkloadId

__all__ = ["TaskHistory"]


class TaskHistory:
    """``limit``: how many ended tasks are kept. Open ones are always kept."""

    def __init__(self, tasks: Iterable[Task] = (), *, limit: int = 1000) -> None:
        self._limit = limit
        self._tasks: dict[int, Task] = {}
        self._newest: dict[WorkloadId, int] = {}
        self._ended = 0
        for task in tasks:
            self.put(task)

    @property
    def next_serial(self) -> int:
        """A serial that is larger than every known one."""
        return max(self._tasks, default=0) + 1

    def put(self, task: Task) -> None:
        """Take a new task, or a known one as it is now."""
        before = self._tasks.get(task.serial)
        self._ended += int(not task.is_open) - int(before is not None and not before.is_open)
        self._tasks[task.serial] = task
        if task.serial >= self._newest.get(task.workload_id, 0):
            self._newest[task.workload_id] = task.serial

    def prune(self) -> tuple[int, ...]:
        """Forget the oldest ended tasks beyond the limit; returns their serials."""
        surplus = self._ended - self._limit
        if surplus <= 0:
            return ()
        gone = [serial for serial, task in self._tasks.items() if not task.is_open][:surplus]
        for serial in gone:
            task = self._tasks.pop(serial)
            if self._newest.get(task.workload_id) == serial:
                del self._newest[task.workload_id]
        self._ended -= len(gone)
        return tuple(gone)

    def newest(self, workload_id: WorkloadId) -> Task | None:
        """The task of this workload that was accepted last."""
        serial = self._newest.get(workload_id)
        return None if serial is None else self._tasks[serial]

    def find(self, *, workload_id: str = "", kind: str = "", state: str = "") -> tuple[Task, ...]:
        """The tasks that match, oldest first; empty filters let everything through."""
        return tuple(
            task
            for task in self._tasks.values()
            if workload_id in ("", task.workload_id)
            and kind in ("", task.kind)
            and state in ("", task.state)
        )

"""Work on one workload at a time, finished even where its caller goes away.

Decided here: making and removing a machine takes several steps that must not be left half done,
nor mixed with those of another call; so they run in a task of their own, under a lock for each
workload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from attrs import define, field

from persys_core.model.ids import WorkloadId

__all__ = ["OneAtATime"]

_T = TypeVar("_T")
_CLOSE_SECONDS = 10.0


@define(eq=False)
class OneAtATime:
    """The locks, and the work that goes on."""

    _locks: WeakValueDictionary[WorkloadId, asyncio.Lock] = field(factory=WeakValueDictionary)
    _tasks: set[asyncio.Task[Any]] = field(factory=set)

    async def finish(
        self, workload_id: WorkloadId, work: Callable[[], Coroutine[Any, Any, _T]]
    ) -> _T:
        """Do ``work`` when no other work on this workload goes on. A cancelled caller leaves it to
        be finished."""
        lock = self._locks.setdefault(workload_id, asyncio.Lock())
        task = asyncio.ensure_future(_locked(lock, work))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Let what has begun end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, though perhaps nobody waits for it any more


async def _locked(lock: asyncio.Lock, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    async with lock:
        return await work()

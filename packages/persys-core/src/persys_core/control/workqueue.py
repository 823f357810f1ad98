"""A queue of keys: what needs a look, each by one worker at a time, at most so many at once.

Decided here: in which order and when keys are handled. Not decided here: what handling means; a
handler looks at the present state of its key, so that many reasons to look are one look.

* A key that is added while it waits is one key; the earlier of two times wins.
* A key that is added while it is handled is handled once more afterwards.
* A smaller ``priority`` goes first; equal ones in the order in which they became ready.
* An exception that leaves a handler is a bug: it is counted, reported, and the key is tried again
  later, with growing delays. No other key suffers from it.

Ends in three ways: ``stop(drain=True)`` handles what is ready, ``stop(drain=False)`` only lets
what is being handled come to its end, and cancelling ``run`` cancels that too.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from attrs import frozen

from persys_core.control.loops import bug_of
from persys_core.ports.clock import Clock
from persys_core.retry.policy import RetryPolicy

__all__ = ["BUG_BACKOFF", "QueueStats", "WorkQueue"]

K = TypeVar("K", bound=Hashable)
_NOW = timedelta(0)
# Durations count microseconds: a key is due when less than half of one is left.
_RESOLUTION = 0.5e-6

BUG_BACKOFF = RetryPolicy()
"""The delays after bugs of one key in a row: 5, 10, 20 … 120 seconds."""


@frozen
class QueueStats:
    """How many keys wait, and what was done since the start."""

    ready: int
    delayed: int
    running: int
    handled: int
    bugs: int


@frozen
class _Entry:
    """A key's place: ``due`` on the monotonic clock, in seconds."""

    due: float
    priority: int

    def merged(self, other: _Entry) -> _Entry:
        """Both wishes in one: the earlier time, the more urgent priority."""
        return _Entry(min(self.due, other.due), min(self.priority, other.priority))


class WorkQueue(Generic[K]):
    """See the module. Everything happens on one event loop; nothing here is for threads.

    ``handler`` is awaited once per look at a key. ``workers``: how many at once. ``on_bug`` is told
    of each exception that left the handler: the key and the error; if it raises, ``run`` ends.
    """

    def __init__(
        self,
        handler: Callable[[K], Awaitable[None]],
        clock: Clock,
        *,
        workers: int,
        on_bug: Callable[[K, Exception], None],
        bug_backoff: RetryPolicy = BUG_BACKOFF,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}; give 1 or more")
        self._handler = handler
        self._clock = clock
        self._workers = workers
        self._on_bug = on_bug
        self._bug_backoff = bug_backoff
        # What waits, by key. The heaps may hold outdated places of a key; these are skipped.
        self._waiting: dict[K, _Entry] = {}
        self._delayed: list[tuple[float, int, K]] = []
        self._ready: list[tuple[int, int, K]] = []
        self._is_ready: set[K] = set()
        self._again: dict[K, _Entry] = {}
        self._running: dict[K, asyncio.Task[None]] = {}
        self._bugs_in_a_row: dict[K, int] = {}
        self._serial = itertools.count()
        self._handled = 0
        self._bugs = 0
        self._stopping = False
        self._under_way = False
        self._fault: BaseException | None = None
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._alarm: tuple[float, asyncio.Task[None]] | None = None

    def add(self, key: K, *, not_before: datetime | None = None, priority: int = 0) -> bool:
        """Have ``key`` looked at, at ``not_before`` or at once. False: the queue is stopping.

        A time that has passed means at once. May be called before ``run``.
        """
        delay = _NOW if not_before is None else not_before - self._clock.now()
        return self.add_after(key, delay, priority=priority)

    def add_after(self, key: K, delay: timedelta, *, priority: int = 0) -> bool:
        """Have ``key`` looked at once ``delay`` has passed. False: the queue is stopping."""
        if self._stopping:
            return False
        due = self._clock.monotonic() + max(delay, _NOW).total_seconds()
        entry = _Entry(due, priority)
        if key in self._running:
            self._again[key] = self._again.get(key, entry).merged(entry)
        else:
            self._enqueue(key, entry)
        return True

    def forget(self, key: K) -> None:
        """Drop ``key`` unless it is being handled; its run of bugs is forgotten too."""
        self._waiting.pop(key, None)
        self._is_ready.discard(key)
        self._again.pop(key, None)
        self._bugs_in_a_row.pop(key, None)
        self._note_idleness()

    def stats(self) -> QueueStats:
        """The present numbers."""
        self._promote()
        ready = len(self._is_ready)
        delayed = len(self._waiting) - ready
        return QueueStats(ready, delayed, len(self._running), self._handled, self._bugs)

    async def run(self) -> None:
        """Handle keys until stopped. Run it once."""
        self._under_way = True
        try:
            while not self._is_over():
                self._changed.clear()
                self._start_ready()
                self._set_alarm()
                if not self._is_over():
                    await self._changed.wait()
        finally:
            self._under_way = False
            self._stopping = True
            await self._cancel_all()
        if self._fault is not None:
            raise self._fault

    async def stop(self, *, drain: bool) -> None:
        """Take nothing more, and wait for the end of what is being handled. Not from a handler.

        ``drain``: what is ready is handled first; what is due later is dropped either way.
        """
        self._promote()
        self._stopping = True
        drain = drain and self._under_way
        due = self._clock.monotonic() + _RESOLUTION
        self._again = {key: each for key, each in self._again.items() if drain and each.due <= due}
        for key in [key for key in self._waiting if not (drain and key in self._is_ready)]:
            self.forget(key)
        self._changed.set()
        await self._idle.wait()

    async def let_end(self, chosen: Callable[[K], bool], patience: timedelta) -> None:
        """Wait until no chosen key is being handled; what takes longer than ``patience`` is cut
        off. They may be added again, also meanwhile. Not from a handler."""
        handled = [task for key, task in self._running.items() if chosen(key)]
        if not handled:
            return
        _, late = await asyncio.wait(handled, timeout=patience.total_seconds())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def wait_idle(self) -> None:
        """Wait until nothing is ready and nothing is being handled; what is due later may wait."""
        while True:
            self._promote()
            if self._is_idle():
                return
            await self._idle.wait()
            # Lets the keys that became due at this very moment be seen.
            await asyncio.sleep(0)

    def _is_over(self) -> bool:
        return self._fault is not None or (self._stopping and self._is_idle())

    def _is_idle(self) -> bool:
        return not self._running and not self._is_ready

    def _note_idleness(self) -> None:
        if self._is_idle():
            self._idle.set()
        else:
            self._idle.clear()

    def _enqueue(self, key: K, entry: _Entry) -> None:
        before = self._waiting.get(key)
        merged = entry if before is None else before.merged(entry)
        if merged == before:
            return
        self._waiting[key] = merged
        if merged.due <= self._clock.monotonic() + _RESOLUTION:
            self._make_ready(key, merged)
        else:
            heapq.heappush(self._delayed, (merged.due, next(self._serial), key))
        self._note_idleness()
        self._changed.set()

    def _make_ready(self, key: K, entry: _Entry) -> None:
        self._is_ready.add(key)
        heapq.heappush(self._ready, (entry.priority, next(self._serial), key))

    def _promote(self) -> None:
        """Make ready what has become due."""
        now = self._clock.monotonic() + _RESOLUTION
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            entry = self._waiting.get(key)
            if entry is not None and entry.due == due and key not in self._is_ready:
                self._make_ready(key, entry)
        self._note_idleness()

    def _start_ready(self) -> None:
        self._promote()
        while self._ready and len(self._running) < self._workers:
            _, _, key = heapq.heappop(self._ready)
            if key in self._is_ready:
                self._start(key)

    def _start(self, key: K) -> None:
        self._is_ready.discard(key)
        del self._waiting[key]
        task = asyncio.create_task(self._handle(key))
        self._running[key] = task
        task.add_done_callback(lambda done: self._finish(key, done))

    async def _handle(self, key: K) -> None:
        error = await bug_of(self._handler(key))
        if error is None:
            self._bugs_in_a_row.pop(key, None)
        else:
            self._note_bug(key, error)

    def _note_bug(self, key: K, error: Exception) -> None:
        self._bugs += 1
        in_a_row = self._bugs_in_a_row.get(key, 0) + 1
        self._bugs_in_a_row[key] = in_a_row
        # A nudge must not turn a bug into a hot loop: what was asked for meanwhile waits too.
        asked = self._again.pop(key, None)
        priority = asked.priority if asked else 0
        self.add_after(key, self._bug_backoff.delay_before(in_a_row), priority=priority)
        self._on_bug(key, error)

    def _finish(self, key: K, task: asyncio.Task[None]) -> None:
        del self._running[key]
        self._handled += 1
        self._fault = self._fault or (None if task.cancelled() else task.exception())
        again = self._again.pop(key, None)
        if again is not None:
            self._enqueue(key, again)
        self._note_idleness()
        self._changed.set()

    def _set_alarm(self) -> None:
        """Have ``run`` woken when the next delayed key is due."""
        while self._delayed and not self._is_current(*self._delayed[0]):
            heapq.heappop(self._delayed)
        if not self._delayed or self._stopping:
            return
        due = self._delayed[0][0]
        if self._alarm is not None and self._alarm[0] <= due and not self._alarm[1].done():
            return
        self._drop_alarm()
        delay = timedelta(seconds=max(0.0, due - self._clock.monotonic()))
        self._alarm = (due, asyncio.create_task(self._ring_after(delay)))

    def _is_current(self, due: float, _: int, key: K) -> bool:
        entry = self._waiting.get(key)
        return entry is not None and entry.due == due and key not in self._is_ready

    async def _ring_after(self, delay: timedelta) -> None:
        await self._clock.sleep(delay)
        self._changed.set()

    def _drop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm[1].cancel()
            self._alarm = None

    async def _cancel_all(self) -> None:
        self._drop_alarm()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._idle.set()

"""A clock that stands still until a test moves it; for tests that run on a real event loop.

Tests of whole loops are better served by ``testing.virtual``, where time moves by itself.
"""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

__all__ = ["ManualClock", "settle"]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_TURNS = 30


async def settle(turns: int = _TURNS) -> None:
    """Let every task that can run do so, ``turns`` times; no time passes."""
    for _ in range(turns):
        await asyncio.sleep(0)


class ManualClock:
    """``sleep`` ends when ``advance`` reaches its instant, in the order of the instants."""

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._elapsed = timedelta()
        self._order = count()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """The instant that the test has moved to, aware UTC."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self._elapsed.total_seconds()

    async def sleep(self, duration: timedelta) -> None:
        """Wait until the clock has moved on by ``duration``; zero only gives others a turn."""
        if duration <= timedelta():
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + duration, next(self._order), woken))
        await woken

    async def advance(self, duration: timedelta) -> None:
        """Move on by ``duration``, waking each sleeper at its instant and letting it run."""
        until = self._elapsed + duration
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, woken = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not woken.done():
                woken.set_result(None)
                await settle()
        self._elapsed = until
        await settle()

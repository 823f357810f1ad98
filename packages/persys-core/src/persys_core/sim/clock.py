"""The clock of a simulation: dates put to the time of an event loop.

Decided here: nothing but the arithmetic. Several clocks may share a loop, each with its own idea
of the wall time; ``step`` sets one of them wrong, as an operator or a time daemon does.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

__all__ = ["VirtualClock"]


class VirtualClock:
    """Implements ``ports.clock.Clock``: wall time is ``start`` plus the loop's time."""

    def __init__(self, start: datetime, loop: asyncio.AbstractEventLoop) -> None:
        """``start`` is the wall time at the loop's time 0; it must be aware."""
        if start.tzinfo is None:
            raise ValueError(f"the start {start} has no time zone; give an aware datetime")
        self._start = start
        self._loop = loop

    def now(self) -> datetime:
        """The present instant on this clock."""
        return self._start + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        """The loop's seconds; no step moves them."""
        return self._loop.time()

    async def sleep(self, duration: timedelta) -> None:
        """Wait for ``duration`` of the loop's time; none or less only lets others run."""
        await asyncio.sleep(max(0.0, duration.total_seconds()))

    def step(self, by: timedelta) -> None:
        """Set the wall time forward or, with a negative ``by``, back."""
        self._start += by

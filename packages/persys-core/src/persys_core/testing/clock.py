"""Contract of Clock. Subclass ``ClockContract`` and give it a ``clock`` and an ``advance``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import pytest

from persys_core.ports.clock import Clock

__all__ = ["Advance", "ClockContract"]

Advance: TypeAlias = Callable[[timedelta], Awaitable[None]]
"""Let time pass: move a virtual clock, or really wait."""

SHORT = timedelta(milliseconds=20)


@pytest.mark.asyncio
class ClockContract:
    """Give it the fixtures ``clock`` and ``advance``."""

    async def test_now_is_aware_utc(self, clock: Clock) -> None:
        """The present instant has an offset, and it is zero."""
        assert clock.now().utcoffset() == timedelta()

    async def test_time_passes(self, clock: Clock, advance: Advance) -> None:
        """Both clocks move on together, the monotonic one in seconds."""
        now, monotonic = clock.now(), clock.monotonic()
        await advance(SHORT)
        assert clock.now() >= now + SHORT / 2
        assert clock.monotonic() >= monotonic + SHORT.total_seconds() / 2

    async def test_monotonic_never_goes_back(self, clock: Clock, advance: Advance) -> None:
        """Readings in a row never decrease."""
        readings = []
        for _ in range(20):
            readings.append(clock.monotonic())
            await advance(SHORT / 100)
        assert readings == sorted(readings)

    async def test_sleep_lasts(self, clock: Clock, advance: Advance) -> None:
        """A sleep ends after its duration and not before."""
        began = clock.monotonic()
        sleeping = asyncio.create_task(clock.sleep(SHORT))
        await asyncio.sleep(0)
        assert not sleeping.done()
        await advance(SHORT * 2)
        await sleeping
        assert clock.monotonic() - began >= SHORT.total_seconds() * 0.9

    async def test_no_time_is_no_sleep(self, clock: Clock) -> None:
        """Zero and negative durations end at once."""
        await clock.sleep(timedelta())
        await clock.sleep(timedelta(seconds=-5))

    async def test_sleep_can_be_cancelled(self, clock: Clock, advance: Advance) -> None:
        """A cancelled sleep ends and leaves the others alone."""
        doomed = asyncio.create_task(clock.sleep(SHORT))
        other = asyncio.create_task(clock.sleep(SHORT))
        await asyncio.sleep(0)
        doomed.cancel()
        await advance(SHORT * 2)
        await other
        assert doomed.cancelled()

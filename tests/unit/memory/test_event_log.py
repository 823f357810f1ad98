"""Ids and times of the in-memory event log."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import cast

import pytest

from persys_core.memory.event_log import MemoryEventLog
from persys_core.model.event import Event, EventFilter, EventType
from persys_core.testing.manual_clock import ManualClock

ALL = EventFilter()


def number_of(event_id: str) -> tuple[int, int]:
    milliseconds, number = event_id.split("-")
    return int(milliseconds), int(number)


@pytest.mark.asyncio
async def test_ids_follow_the_clock_and_grow() -> None:
    """Ids are milliseconds and a number; they grow even where the clock stands or goes back."""
    clock = ManualClock()
    log = MemoryEventLog(clock=clock)
    for _ in range(3):
        log.append(Event(EventType.NODE_LOST, clock.now()))
    await clock.advance(timedelta(seconds=1))
    log.append(Event(EventType.NODE_LOST, clock.now()))
    ids = [number_of(event.id) for event in await log.list(ALL)]
    start = int(ManualClock().now().timestamp() * 1000)
    assert ids == [(start, 0), (start, 1), (start, 2), (start + 1000, 0)]


@pytest.mark.asyncio
async def test_another_life_is_a_gap() -> None:
    """An id of the log before the restart is unknown to the new one, never a silent position."""
    clock = ManualClock()
    old = MemoryEventLog(clock=clock)
    old.append(Event(EventType.NODE_LOST, clock.now()))
    (seen,) = await old.list(ALL)
    await clock.advance(timedelta(minutes=1))
    new = MemoryEventLog(clock=clock)
    new.append(Event(EventType.NODE_JOINED, clock.now()))
    tail = cast("AsyncGenerator[Event, None]", new.tail(ALL, seen.id))
    async with aclosing(tail):
        lost = await anext(tail)
        assert (lost.type, lost.id, lost.timestamp) == (
            EventType.EVENTS_LOST,
            seen.id,
            clock.now(),
        )
        assert (await anext(tail)).type is EventType.NODE_JOINED

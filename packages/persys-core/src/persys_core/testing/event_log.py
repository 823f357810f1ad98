"""Contract of EventLog. Subclass ``EventLogContract``; see its fixtures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from persys_core.model.event import Event, EventFilter, EventType
from persys_core.ports.events import EventLog

__all__ = ["EventLogContract", "Flush"]

Flush: TypeAlias = Callable[[], Awaitable[None]]
"""Wait until everything that was appended can be read."""

ALL = EventFilter()
PATIENCE_SECONDS = 30.0
_START = datetime(2026, 1, 1, tzinfo=UTC)


def _event(number: int, workload_id: str = "w1") -> Event:
    return Event(
        EventType.WORKLOAD_SCHEDULED,
        _START + timedelta(seconds=number),
        workload_id=workload_id,
        node_id="n1",
        reason=f"number {number}",
        details={"number": str(number)},
    )


def _append(log: EventLog, *numbers: int) -> None:
    for number in numbers:
        log.append(_event(number))


def _numbers(events: list[Event]) -> list[int]:
    return [int(event.details["number"]) for event in events]


@asynccontextmanager
async def _tailing(
    log: EventLog, wanted: EventFilter = ALL, after_id: str = ""
) -> AsyncIterator[AsyncIterator[Event]]:
    tail = log.tail(wanted, after_id)
    try:
        yield tail
    finally:
        aclose = getattr(tail, "aclose", None)
        assert aclose is not None, "a tail is closed by its aclose(): make it an async generator"
        await aclose()


async def _next(tail: AsyncIterator[Event], number: int) -> list[Event]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return [await anext(tail) for _ in range(number)]


@pytest.mark.asyncio
class EventLogContract:
    """Give it the fixtures ``log`` (new and empty), ``capacity`` and ``flush``.

    ``capacity`` is how many events the log keeps at most. An implementation that keeps a few
    more (trimming by blocks) says the number by which events are gone for certain.
    """

    async def test_an_empty_log_lists_nothing(self, log: EventLog) -> None:
        """A new log has no events."""
        assert list(await log.list(ALL)) == []

    async def test_events_come_oldest_first(self, log: EventLog, flush: Flush) -> None:
        """What was appended is listed whole, in order, each with an id of its own."""
        _append(log, 1, 2, 3)
        await flush()
        listed = list(await log.list(ALL))
        assert _numbers(listed) == [1, 2, 3]
        assert len({event.id for event in listed} - {""}) == 3
        assert [(event.type, event.timestamp, event.reason) for event in listed] == [
            (each.type, each.timestamp, each.reason) for each in map(_event, (1, 2, 3))
        ]

    async def test_limit_takes_the_newest(self, log: EventLog, flush: Flush) -> None:
        """A limit keeps the newest matching events, still oldest first; 0 is all."""
        _append(log, 1, 2, 3, 4)
        log.append(_event(5, "w2"))
        await flush()
        assert _numbers(list(await log.list(ALL, 2))) == [4, 5]
        assert _numbers(list(await log.list(EventFilter(workload_id="w1"), 2))) == [3, 4]
        assert _numbers(list(await log.list(ALL, 0))) == [1, 2, 3, 4, 5]

    async def test_filters_select(self, log: EventLog, flush: Flush) -> None:
        """Type, workload and node each narrow the list and the tail."""
        log.append(_event(1, "w1"))
        log.append(_event(2, "w2"))
        log.append(Event(EventType.NODE_LOST, _START, node_id="n2", details={"number": "3"}))
        await flush()
        assert _numbers(list(await log.list(EventFilter(workload_id="w2")))) == [2]
        assert _numbers(list(await log.list(EventFilter(type="NodeLost")))) == [3]
        assert _numbers(list(await log.list(EventFilter(node_id="n1")))) == [1, 2]
        async with _tailing(log, EventFilter(node_id="n2")) as tail:
            assert _numbers(await _next(tail, 1)) == [3]

    async def test_the_log_is_bounded(self, log: EventLog, capacity: int, flush: Flush) -> None:
        """However many are appended, at most the capacity is kept, the newest of all."""
        _append(log, *range(capacity * 3))
        await flush()
        listed = _numbers(list(await log.list(ALL)))
        assert len(listed) <= capacity
        assert listed == list(range(capacity * 3 - len(listed), capacity * 3))

    async def test_a_tail_goes_from_history_to_live(self, log: EventLog, flush: Flush) -> None:
        """History first, then what happens, nothing twice and nothing left out."""
        _append(log, 1, 2)
        await flush()
        async with _tailing(log) as tail:
            assert _numbers(await _next(tail, 1)) == [1]
            _append(log, 3)
            assert _numbers(await _next(tail, 2)) == [2, 3]
            waiting = asyncio.create_task(_next(tail, 1))
            await asyncio.sleep(0)
            _append(log, 4)
            assert _numbers(await waiting) == [4]

    async def test_a_tail_resumes_after_an_id(self, log: EventLog, flush: Flush) -> None:
        """A reader that names the last event it saw gets the ones after it."""
        _append(log, 1, 2, 3)
        await flush()
        seen = list(await log.list(ALL))
        async with _tailing(log, after_id=seen[0].id) as tail:
            assert _numbers(await _next(tail, 2)) == [2, 3]
        async with _tailing(log, after_id=seen[2].id) as tail:
            waiting = asyncio.create_task(_next(tail, 1))
            await asyncio.sleep(0)
            _append(log, 4)
            assert _numbers(await waiting) == [4]

    async def test_an_unknown_id_is_a_gap(self, log: EventLog, flush: Flush) -> None:
        """Resuming after an id that never was begins with EventsLost, then all that is kept."""
        _append(log, 1, 2)
        await flush()
        async with _tailing(log, after_id="1-1") as tail:
            events = await _next(tail, 3)
        assert events[0].type is EventType.EVENTS_LOST
        assert _numbers(events[1:]) == [1, 2]

    async def test_a_trimmed_id_is_a_gap(self, log: EventLog, capacity: int, flush: Flush) -> None:
        """Resuming after an event that is not kept any more begins with EventsLost."""
        _append(log, 0)
        await flush()
        (first,) = await log.list(ALL)
        _append(log, *range(1, capacity * 3))
        await flush()
        kept = _numbers(list(await log.list(ALL)))
        async with _tailing(log, EventFilter(type="NodeLost"), after_id=first.id) as tail:
            assert [event.type for event in await _next(tail, 1)] == [EventType.EVENTS_LOST]
        async with _tailing(log, after_id=first.id) as tail:
            events = await _next(tail, 1 + len(kept))
        assert _numbers(events[1:]) == kept

    async def test_a_slow_reader_is_ended(self, log: EventLog, capacity: int, flush: Flush) -> None:
        """A reader that falls behind what is kept gets EventsLost as its last event."""
        _append(log, 0)
        await flush()
        async with _tailing(log) as tail:
            assert _numbers(await _next(tail, 1)) == [0]
            _append(log, *range(1, capacity * 3))
            await flush()
            read = [event async for event in tail]
        assert read[-1].type is EventType.EVENTS_LOST
        assert _numbers(read[:-1]) == list(range(1, len(read)))

    async def test_tails_are_independent(self, log: EventLog, flush: Flush) -> None:
        """Two readers each get everything; one that leaves disturbs nobody."""
        _append(log, 1)
        await flush()
        async with _tailing(log) as staying:
            async with _tailing(log) as leaving:
                assert _numbers(await _next(leaving, 1)) == [1]
            _append(log, 2)
            assert _numbers(await _next(staying, 2)) == [1, 2]

    async def test_append_never_raises(self, log: EventLog, flush: Flush) -> None:
        """Odd texts and sizes are taken without an error and without waiting (K04)."""
        log.append(Event(EventType.NODE_LOST, _START, reason="\x00\u20ac" * 10_000))
        log.append(Event(EventType.NODE_LOST, _START, details={"": "", "é": "\n"}))
        await flush()
        assert await log.list(ALL)

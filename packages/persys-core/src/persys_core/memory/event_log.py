"""EventLog in the memory of one replica: the last events, and tails that read along.

A tail keeps a position, not a queue of its own: a reader that falls behind what is kept has lost
events, is told so and ended. What an event says is decided by whoever appends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from attrs import evolve

from persys_core.model.event import Event, EventFilter, EventType
from persys_core.ports.clock import Clock

__all__ = ["MemoryEventLog"]

DEFAULT_CAPACITY = 1000
_NO_INSTANT = datetime.fromtimestamp(0, UTC)


class MemoryEventLog:
    """Keeps the last ``capacity`` events.

    Ids are ``<milliseconds>-<number>``. Without a clock the milliseconds are 0, so that ids of
    two lives of the log look alike; give one wherever readers outlive the log.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY, clock: Clock | None = None) -> None:
        self._events: deque[Event] = deque(maxlen=capacity)
        self._clock = clock
        self._appended = 0
        self._last_id = (0, 0)
        # A dict, since a set of events has no order that a run could repeat.
        self._bells: dict[asyncio.Event, None] = {}
        self._listeners: list[Callable[[Event], None]] = []

    def on_append(self, tell: Callable[[Event], None]) -> None:
        """Have ``tell`` called with every event from now on."""
        self._listeners.append(tell)

    def append(self, event: Event) -> None:
        """Record ``event`` under a new id; the oldest one goes where the log is full."""
        event = evolve(event, id=self._next_id())
        self._events.append(event)
        self._appended += 1
        for tell in self._listeners:
            tell(event)
        for bell in self._bells:
            bell.set()

    async def list(self, wanted: EventFilter, limit: int = 0) -> Sequence[Event]:
        """The newest ``limit`` matching events (0: all that are kept), oldest first."""
        matching = [event for event in self._events if wanted.matches(event)]
        return matching[-limit:] if limit > 0 else matching

    async def tail(self, wanted: EventFilter, after_id: str = "") -> AsyncIterator[Event]:
        """What is kept (after ``after_id`` where given), then live; see ``EventLog.tail``.

        An ``EventsLost`` event carries the id that the reader had got to.
        """
        position, reached = self._start(after_id), after_id
        if after_id and position is None:
            yield self._lost(reached, "events after this id are not kept any more")
        position = self._oldest if position is None else position
        with self._listening() as bell:
            while True:
                if position < self._oldest:
                    yield self._lost(reached, "this reader was too slow")
                    return
                if position == self._appended:
                    bell.clear()
                    await bell.wait()
                    continue
                event = self._events[position - self._oldest]
                position, reached = position + 1, event.id
                if wanted.matches(event):
                    yield event

    @property
    def _oldest(self) -> int:
        """The number, counted from the first append, of the oldest event that is kept."""
        return self._appended - len(self._events)

    def _start(self, after_id: str) -> int | None:
        """The number of the event after the one called ``after_id``; ``None`` if that is gone."""
        for number, event in enumerate(self._events, start=self._oldest):
            if event.id == after_id:
                return number + 1
        return None

    def _next_id(self) -> str:
        milliseconds = int(self._clock.now().timestamp() * 1000) if self._clock else 0
        last_milliseconds, last_number = self._last_id
        if milliseconds > last_milliseconds:
            self._last_id = (milliseconds, 0)
        else:
            self._last_id = (last_milliseconds, last_number + 1)
        return "{}-{}".format(*self._last_id)

    def _lost(self, reached: str, reason: str) -> Event:
        newest = self._events[-1].timestamp if self._events else _NO_INSTANT
        now = self._clock.now() if self._clock else newest
        return Event(EventType.EVENTS_LOST, now, reason=reason, id=reached)

    @contextmanager
    def _listening(self) -> Iterator[asyncio.Event]:
        bell = asyncio.Event()
        self._bells[bell] = None
        try:
            yield bell
        finally:
            del self._bells[bell]

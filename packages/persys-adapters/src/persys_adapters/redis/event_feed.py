"""EventFeed: one reader per replica follows the stream, and every watcher reads what it brings.

Decided here: how the reader goes on after an outage, a failover or a flush, and when it must say
that events are missing. A watcher holds a position in a bounded window, no queue and no connection
of its own, so hundreds of them cost one reader (field report K02, reference defect J6).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog
from attrs import define, frozen

from persys_adapters.redis.event_json import event_from
from persys_adapters.redis.stream import BEGINNING, EventStream, is_before
from persys_adapters.redis.trouble import RedisTroubleError, TroubleLog
from persys_core.model.event import Event, EventType
from persys_core.ports.clock import Clock

__all__ = ["EventFeed", "Start", "Watcher"]

_PAUSE = timedelta(seconds=1)

_log = structlog.stdlib.get_logger("persys_adapters.redis")


@frozen
class Start:
    """Where a watcher begins: what it finds in the window is all that came after ``last_id``."""

    position: int
    last_id: str


@define(eq=False)
class Watcher:
    """One reader of the window; ``bell`` rings when there may be something new."""

    bell: asyncio.Event


class EventFeed:
    """The newest events that were added while this replica followed, at most ``window``."""

    def __init__(
        self,
        stream: EventStream,
        clock: Clock,
        *,
        window: int,
        wait: timedelta,
        ttl: timedelta,
        on_bug: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._wait = wait
        self._ttl = ttl
        self._on_bug = on_bug
        self._window: deque[Event] = deque(maxlen=window)
        self._added = 0
        self._cursor = ""
        self._following = asyncio.Event()
        self._watchers: dict[Watcher, None] = {}
        self._trouble = TroubleLog(clock, "reading events")
        self.is_away = False
        """Whether the last try to read failed."""

    @property
    def oldest(self) -> int:
        """The position of the oldest event in the window."""
        return self._added - len(self._window)

    @property
    def next_position(self) -> int:
        """The position that the next event will get."""
        return self._added

    def at(self, position: int) -> Event:
        """The event at ``position``, which must be in the window."""
        return self._window[position - self.oldest]

    async def start(self) -> Start:
        """Where a watcher of this moment begins, once the stream is followed."""
        await self._following.wait()
        return Start(self._added, self._cursor)

    async def reached(self, entry_id: str) -> None:
        """Wait until the feed has come to the entry, or beyond."""
        with self.watching() as watcher:
            while is_before(self._cursor, entry_id):
                watcher.bell.clear()
                await watcher.bell.wait()

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        """A watcher for as long as the context is open."""
        watcher = Watcher(asyncio.Event())
        self._watchers[watcher] = None
        try:
            yield watcher
        finally:
            del self._watchers[watcher]

    async def run(self) -> None:
        """Follow the stream for ever, through outages."""
        while True:
            try:
                await self._follow()
            except RedisTroubleError as error:
                self.is_away = True
                self._following.clear()
                self._trouble.troubled(error)
            except Exception:
                self._following.clear()
                self._on_bug()
                _log.exception("this is a bug: events could not be followed")
            await self._clock.sleep(_PAUSE)

    def lost(self, reached: str, reason: str) -> Event:
        """The event that stands for those that are missing after the one called ``reached``."""
        return Event(EventType.EVENTS_LOST, self._clock.now(), reason=reason, id=reached)

    async def _follow(self) -> None:
        if not self._cursor:
            self._cursor = await self._stream.last_id()
            self._ring()
        has_answered = False
        while True:
            await self._catch_up(after_outage=not has_answered)
            has_answered = True
            self.is_away = False
            self._trouble.works()
            self._following.set()
            await self._stream.wait_beyond(self._cursor, self._wait)

    async def _catch_up(self, *, after_outage: bool) -> None:
        while True:
            page = await self._stream.after(self._cursor)
            if not page.whole and not page.entries:
                return await self._resume()
            if not page.whole and after_outage:
                self._add(self.lost(self._cursor, "events were missed while Redis was away"))
            elif not page.whole:
                self._leave_a_gap()
            for entry in page.entries:
                self._cursor = entry.id
                event = event_from(entry.data, entry.id)
                if event is not None:
                    self._add(event)
            self._ring()
            if page.is_last:
                return None

    async def _resume(self) -> None:
        """The entry that was read last is gone, and nothing stands behind it."""
        last = await self._stream.last_id()
        if last == self._cursor:
            return
        if last != BEGINNING or not self._has_expired():
            self._add(self.lost(self._cursor, "the stream was emptied, or went back to a copy"))
        self._cursor = last
        self._ring()

    def _leave_a_gap(self) -> None:
        """Events were trimmed before they were read: that is the end for every watcher of now, as
        it is for one that is too slow itself."""
        self._window.clear()
        self._added += 1

    def _has_expired(self) -> bool:
        if self._cursor == BEGINNING:
            return True
        newest = int(self._cursor.partition("-")[0]) / 1000
        return self._clock.now().timestamp() - newest >= self._ttl.total_seconds()

    def _add(self, event: Event) -> None:
        self._window.append(event)
        self._added += 1
        self._ring()

    def _ring(self) -> None:
        for watcher in self._watchers:
            watcher.bell.set()

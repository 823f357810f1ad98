"""RedisEventLog: the events of every replica in one stream, ``scheduler:events``.

Decided here: when an event is in the stream twice (never: a batch whose answer was lost is looked
for before it is sent again), and what readers are told while Redis is away (nothing; a list is
empty, a tail waits). Events that had to be given up are told of in the stream itself, by one event
of type ``EventsLost``, to the readers of every replica.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import TypeVar

from attrs import frozen

from persys_adapters.redis.address import RedisTarget
from persys_adapters.redis.event_feed import EventFeed, Watcher
from persys_adapters.redis.event_json import bounded, event_from, event_json, token_in
from persys_adapters.redis.link import Command, RedisLink
from persys_adapters.redis.outbox import Outbox
from persys_adapters.redis.stream import BEGINNING, EventStream, is_before, is_entry_id
from persys_adapters.redis.tasks import end
from persys_adapters.redis.trouble import Lost, RedisTroubleError, TroubleLog
from persys_core.model.event import Event, EventFilter, EventType
from persys_core.ports.clock import Clock
from persys_core.ports.observer import Metric, Observer

__all__ = ["EVENTS_KEY", "EventOptions", "RedisEventLog"]

T = TypeVar("T")

EVENTS_KEY = "scheduler:events"
WAITING_AT_MOST = 10_000
_WINDOW_AT_LEAST = 100
_WINDOW_AT_MOST = 10_000
_LOOK_BACK = 1000
_READERS = 4
_PAUSE = timedelta(seconds=1)


@frozen
class EventOptions:
    """How much is kept, and for how long after the last event. ``wait`` is that of one read.

    ``key``: the stream; the same for all replicas.
    """

    max_entries: int = 1000
    ttl: timedelta = timedelta(hours=24)
    wait: timedelta = timedelta(seconds=5)
    key: str = EVENTS_KEY


class _EventSink:
    """Writes batches of events, and, before them, that others had to be given up."""

    def __init__(self, link: RedisLink, clock: Clock, options: EventOptions) -> None:
        self._link = link
        self._clock = clock
        self._options = options
        self._stream = EventStream(link, options.key, options.max_entries)
        self.lost = 0

    async def write(self, batch: Mapping[str, Event], *, unsure: bool) -> int:
        """Each event once; see ``Sink``."""
        there = await self._among_newest(batch) if unsure else frozenset()
        events = {token: event for token, event in batch.items() if token not in there}
        told = self.lost
        commands = [self._add(token, event) for token, event in events.items()]
        if told:
            commands.insert(0, self._add(uuid.uuid4().hex, self._gap(told)))
        if not commands:
            return 0
        seconds = max(int(self._options.ttl.total_seconds()), 1)
        answers = await self._link.together([*commands, ("EXPIRE", self._options.key, seconds)])
        added = answers[len(commands) - len(events) : len(commands)]
        refused = sum(isinstance(answer, RedisTroubleError) for answer in added)
        self.lost -= 0 if refused else told
        return refused

    async def _among_newest(self, batch: Mapping[str, Event]) -> frozenset[str]:
        """Which of the batch stand in the stream already."""
        found, seen = set(), 0
        async for entry in self._stream.newest_first():
            found.add(token_in(entry.data))
            seen += 1
            if seen >= _LOOK_BACK + len(batch):
                break
        return frozenset(found & set(batch))

    def _add(self, token: str, event: Event) -> Command:
        limit = self._options.max_entries
        data = event_json(event, token)
        return ("XADD", self._options.key, "MAXLEN", "~", limit, "*", "data", data)

    def _gap(self, number: int) -> Event:
        return Event(
            EventType.EVENTS_LOST,
            self._clock.now(),
            reason=f"{number} events could not be written in time and were dropped",
            details={"dropped": str(number)},
        )


@frozen
class _EventWatch:
    """Counts events that were given up, and has it told in the stream."""

    _sink: _EventSink
    _observer: Observer
    _log: TroubleLog

    def lost(self, number: int, why: Lost) -> None:
        self._sink.lost += number
        self._observer.increment(Metric.EVENTS_DROPPED, {"reason": str(why)}, number)
        # The name under which the reference counts them.
        self._observer.increment(Metric.STORE_WRITES, {"category": "event_dropped"}, number)
        if why is Lost.BUG:
            self._observer.increment(Metric.BUGS, {"where": "redis"})
        self._log.lost(number, str(why))

    def troubled(self, error: RedisTroubleError) -> None:
        self._log.troubled(error)

    def works(self) -> None:
        self._log.works()


class RedisEventLog:
    """The event log of one replica; ``open`` makes it, and never fails for want of Redis."""

    def __init__(
        self, target: RedisTarget, clock: Clock, observer: Observer, options: EventOptions
    ) -> None:
        self._clock = clock
        self._reads = RedisLink(target, connections=_READERS)
        self._writes = RedisLink(target)
        self._waits = RedisLink(target, wait=options.wait)
        self._stream = EventStream(self._reads, options.key, options.max_entries)
        sink = _EventSink(self._writes, clock, options)
        watch = _EventWatch(sink, observer, TroubleLog(clock, "writing events"))
        self._outbox: Outbox[Event] = Outbox(sink, clock, watch, WAITING_AT_MOST)
        self._reading = TroubleLog(clock, "listing events")
        self._no_reads_until = 0.0
        self._feed = EventFeed(
            EventStream(self._waits, options.key, options.max_entries),
            clock,
            window=min(max(options.max_entries, _WINDOW_AT_LEAST), _WINDOW_AT_MOST),
            wait=options.wait,
            ttl=options.ttl,
            on_bug=partial(observer.increment, Metric.BUGS, {"where": "redis"}),
        )

    @classmethod
    async def open(
        cls,
        target: RedisTarget,
        clock: Clock,
        observer: Observer,
        stack: AsyncExitStack,
        options: EventOptions | None = None,
    ) -> RedisEventLog:
        """A log that writes and follows until ``stack`` is closed."""
        log = cls(target, clock, observer, options or EventOptions())
        writing = asyncio.create_task(log._outbox.run())
        following = asyncio.create_task(log._feed.run())

        async def close() -> None:
            await log._outbox.close(writing)
            await end(following)
            for link in (log._reads, log._writes, log._waits):
                await link.aclose()

        stack.push_async_callback(close)
        return log

    @property
    def waiting(self) -> int:
        """How many events are not written yet."""
        return len(self._outbox)

    @property
    def is_away(self) -> bool:
        """Whether Redis could not be written to or followed at the last try."""
        return self._outbox.is_away or self._feed.is_away

    def append(self, event: Event) -> None:
        """Have ``event`` written soon; never waits and never raises."""
        self._outbox.put(uuid.uuid4().hex, bounded(event))

    async def flushed(self) -> None:
        """Wait until what was appended here can be read, by watchers of this replica too."""
        await self._outbox.drained()
        await self._feed.reached(await self._steadily(self._stream.last_id))

    async def list(self, wanted: EventFilter, limit: int = 0) -> Sequence[Event]:
        """The newest ``limit`` matching events, oldest first; none where Redis is away."""
        if self._clock.monotonic() < self._no_reads_until:
            return []
        found: list[Event] = []
        try:
            async for entry in self._stream.newest_first():
                event = event_from(entry.data, entry.id)
                if event is not None and wanted.matches(event):
                    found.append(event)
                    if len(found) == limit:
                        break
        except RedisTroubleError as error:
            # While Redis hangs, not every caller shall wait for it.
            self._no_reads_until = self._clock.monotonic() + _PAUSE.total_seconds()
            self._reading.troubled(error)
            return []
        return found[::-1]

    async def tail(self, wanted: EventFilter, after_id: str = "") -> AsyncIterator[Event]:
        """What is kept (after ``after_id`` where given), then live; see ``EventLog.tail``.

        While Redis is away nothing comes; after that, what was written meanwhile.
        """
        with self._feed.watching() as watcher:
            start = await self._feed.start()
            reached = await self._place(after_id)
            if reached != after_id and after_id:
                yield self._feed.lost(after_id, "events after this id are not kept any more")
            async for event in self._history(reached, start.last_id):
                reached = event.id
                if wanted.matches(event):
                    yield event
            async for event in self._live(watcher, start.position, reached):
                if wanted.matches(event):
                    yield event

    async def _place(self, after_id: str) -> str:
        """The entry to read on from: ``after_id``, or the beginning where that is not kept."""
        if not is_entry_id(after_id):
            return BEGINNING
        kept = await self._steadily(lambda: self._stream.has(after_id))
        return after_id if kept else BEGINNING

    async def _history(self, cursor: str, up_to: str) -> AsyncIterator[Event]:
        """What is kept after ``cursor`` up to ``up_to``, page by page, through outages."""
        is_last = not is_before(cursor, up_to)
        while not is_last:
            page = await self._steadily(partial(self._stream.after, cursor, up_to))
            if not page.whole and cursor != BEGINNING:
                yield self._feed.lost(cursor, "events were trimmed before they were read")
            for entry in page.entries:
                cursor = entry.id
                event = event_from(entry.data, entry.id)
                if event is not None:
                    yield event
            is_last = page.is_last

    async def _live(self, watcher: Watcher, position: int, reached: str) -> AsyncIterator[Event]:
        """What the feed brings. A reader from another replica may be ahead of it at first."""
        while True:
            if position < self._feed.oldest:
                yield self._feed.lost(reached, "this reader was too slow")
                return
            if position == self._feed.next_position:
                watcher.bell.clear()
                await watcher.bell.wait()
                continue
            event = self._feed.at(position)
            position += 1
            if event.type is EventType.EVENTS_LOST or is_before(reached, event.id):
                reached = event.id
                yield event

    async def _steadily(self, read: Callable[[], Awaitable[T]]) -> T:
        """The result of ``read``, however long Redis is away."""
        while True:
            try:
                found = await read()
                self._no_reads_until = 0.0
                return found
            except RedisTroubleError as error:
                self._reading.troubled(error)
                await self._clock.sleep(_PAUSE)
                await self._feed.start()

"""Outbox: what is to be written to Redis waits here, in a bounded number, and nobody waits for it.

Decided here: one task writes, in batches; what cannot be written now is tried again until there is
no more room, and then the oldest goes, counted (field report K04). What a batch becomes in Redis
is decided by its sink. Items of one key replace each other while they wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

import structlog

from persys_adapters.redis.tasks import end
from persys_adapters.redis.trouble import Lost, RedisTroubleError
from persys_core.ports.clock import Clock

__all__ = ["Outbox", "OutboxWatch", "Sink"]

T = TypeVar("T")
_T_contra = TypeVar("_T_contra", contravariant=True)

BATCH = 128
_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=2)
_LAST_WORDS = timedelta(seconds=2)

_log = structlog.stdlib.get_logger("persys_adapters.redis")


class Sink(Protocol[_T_contra]):
    """Writes a batch."""

    async def write(self, batch: Mapping[str, _T_contra], *, unsure: bool) -> int:
        """Write ``batch``, by key; the number of items that Redis refused for good.

        ``unsure``: an earlier try may have written some of it. Raises ``RedisTroubleError``
        where nothing was written, or where that is not known.
        """
        ...


class OutboxWatch(Protocol):
    """Is told how the writing goes; never raises."""

    def lost(self, number: int, why: Lost) -> None:
        """So many items were given up."""
        ...

    def troubled(self, error: RedisTroubleError) -> None:
        """A batch could not be written now."""
        ...

    def works(self) -> None:
        """A batch was written."""
        ...


class Outbox(Generic[T]):
    """At most ``capacity`` items wait; ``run`` writes them until it is cancelled."""

    def __init__(
        self, sink: Sink[T], clock: Clock, watch: OutboxWatch, capacity: int, batch: int = BATCH
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._watch = watch
        self._capacity = capacity
        self._batch = batch
        self._waiting: OrderedDict[str, T] = OrderedDict()
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._writing = 0
        self.is_away = False
        """Whether the last try failed."""

    def __len__(self) -> int:
        return len(self._waiting) + self._writing

    def put(self, key: str, item: T) -> None:
        """Have ``item`` written soon, in the place of one of the same key that still waits."""
        self._waiting.pop(key, None)
        self._waiting[key] = item
        self._wake.set()
        self._shrink()

    def items(self) -> Iterator[T]:
        """What waits, oldest first."""
        return iter(tuple(self._waiting.values()))

    async def drained(self) -> None:
        """Wait until nothing waits any more."""
        while len(self):
            self._written.clear()
            await self._written.wait()

    async def run(self) -> None:
        """Write for ever."""
        pause, unsure = _FIRST_PAUSE, False
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            if await self._try(unsure):
                pause, unsure = _FIRST_PAUSE, False
            else:
                unsure = True
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def close(self, running: asyncio.Task[None]) -> None:
        """Give what waits a last moment, then end ``running`` and count what is left."""
        if not self.is_away:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS.total_seconds()):
                    await self.drained()
        await end(running)
        self._give_up(len(self), Lost.STOPPED)
        self._waiting.clear()

    async def _try(self, unsure: bool) -> bool:
        batch = self._take()
        try:
            refused = await self._sink.write(batch, unsure=unsure)
        except RedisTroubleError as error:
            self._restore(batch)
            self.is_away = True
            self._watch.troubled(error)
            return False
        except asyncio.CancelledError:
            self._restore(batch)
            raise
        except Exception:
            # A bug must neither end the writing nor hold it up for ever with the same batch.
            _log.exception("this is a bug: a batch for Redis could not be made")
            self._give_up(len(batch), Lost.BUG)
        else:
            self.is_away = False
            self._give_up(refused, Lost.REFUSED)
            self._watch.works()
        finally:
            self._writing = 0
            self._written.set()
        return True

    def _take(self) -> dict[str, T]:
        number = min(self._batch, len(self._waiting))
        batch = dict(self._waiting.popitem(last=False) for _ in range(number))
        self._writing = len(batch)
        return batch

    def _restore(self, batch: Mapping[str, T]) -> None:
        for key, item in reversed(tuple(batch.items())):
            if key not in self._waiting:
                self._waiting[key] = item
                self._waiting.move_to_end(key, last=False)
        self._writing = 0
        self._shrink()

    def _shrink(self) -> None:
        surplus = len(self) - self._capacity
        for _ in range(min(surplus, len(self._waiting))):
            self._waiting.popitem(last=False)
        self._give_up(surplus, Lost.QUEUE_FULL)

    def _give_up(self, number: int, why: Lost) -> None:
        if number > 0:
            self._watch.lost(number, why)

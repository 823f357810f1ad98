"""What goes wrong between a replica and the store: outages, lost answers, slowness, a late watch.

Decided here: what a fault looks like to the replica. A commit that fails *before* was not done; one
that fails *after* was done and nobody knows (``AmbiguousCommitError``). While the store is away
nothing answers, and a watch stands still. Conflicts need no fault: other replicas make them.

Chance is drawn a fixed number of times per call from one stream per replica.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import cast

from attrs import define, frozen

from persys_core.model.ids import StoreRevision
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    ClusterStore,
    Commit,
    CommitResult,
    Guarantee,
    Key,
    Record,
    Snapshot,
    StoreUnavailableError,
    Versioned,
    WatchEvent,
)
from persys_core.sim.agent_settings import Latency

__all__ = ["FaultyStore", "StoreFaults", "StoreWeather"]

_OUTAGE_ANSWER = Latency.of(0.01, 2)
_POLL = timedelta(seconds=0.5)


@frozen
class StoreFaults:
    """Rates are shares of all calls, 0 to 1. ``slow``: the share of commits that take ``delay``."""

    error_before: float = 0.0
    error_after: float = 0.0
    read_error: float = 0.0
    slow: float = 0.0
    delay: Latency = Latency.of(0.2, 3)
    watch_lag: Latency = Latency.of(0)
    watch_error: float = 0.0


@define(eq=False)
class StoreWeather:
    """What all replicas share: ``is_away`` is an outage for everybody."""

    faults: StoreFaults = StoreFaults()
    is_away: bool = False
    commits_failed: int = 0
    commits_lost: int = 0


class FaultyStore:
    """One replica's store behind ``weather``. ``is_cut_off``: this replica alone is without it."""

    def __init__(
        self, store: ClusterStore, weather: StoreWeather, clock: Clock, rng: random.Random
    ) -> None:
        self._store = store
        self._weather = weather
        self._clock = clock
        self._rng = rng
        self.is_cut_off = False

    @property
    def guarantees(self) -> Guarantee:
        """As the store behind."""
        return self._store.guarantees

    async def snapshot(self) -> Snapshot:
        """As the port says, or the store is away."""
        await self._read_fault()
        return await self._store.snapshot()

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        """As the port says, or the store is away."""
        await self._read_fault()
        return await self._store.get(keys)

    @property
    def backend_id(self) -> str:
        """The store's."""
        return self._store.backend_id

    async def compact(self, before: StoreRevision) -> None:
        """Pass it on."""
        await self._store.compact(before)

    async def probe(self, *, writing: bool = False) -> StoreRevision:
        """As the port says, or the store is away."""
        await self._read_fault()
        return await self._store.probe(writing=writing)

    async def commit(self, commit: Commit) -> CommitResult:
        """As the port says, with the faults of the moment.

        A caller that is cancelled while the commit is on its way leaves it on its way: whether it
        is done is a matter of chance, and it is not done later.
        """
        before, after, slow, length, lands = (self._rng.random() for _ in range(5))
        faults = self._weather.faults
        await self._require_store()
        if before < faults.error_before:
            self._weather.commits_failed += 1
            raise StoreUnavailableError("the store closed the connection before the commit")
        if slow < faults.slow:
            await self._travel(commit, faults.delay.at(length), lands)
        if self._is_away():
            return await self._lost_in_outage(commit, lands)
        result = await self._store.commit(commit)
        if after < faults.error_after:
            self._weather.commits_lost += 1
            raise AmbiguousCommitError("the store closed the connection after the commit")
        return result

    async def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        """As the port says, late by the lag of the moment, and standing still in an outage."""
        watched = cast("AsyncGenerator[WatchEvent, None]", self._store.watch(after))
        async with aclosing(watched) as events:
            async for event in events:
                await self._watch_fault()
                yield event

    async def _watch_fault(self) -> None:
        lag, error = self._rng.random(), self._rng.random()
        faults = self._weather.faults
        if error < faults.watch_error:
            raise StoreUnavailableError("the watch was interrupted")
        if delay := faults.watch_lag.at(lag):
            await self._clock.sleep(delay)
        while self._is_away():
            await self._clock.sleep(_POLL)

    async def _travel(self, commit: Commit, delay: timedelta, lands: float) -> None:
        try:
            await self._clock.sleep(delay)
        except asyncio.CancelledError:
            if lands < 0.5 and not self._is_away():
                await self._store.commit(commit)
            raise

    async def _lost_in_outage(self, commit: Commit, lands: float) -> CommitResult:
        """The outage began while the commit was under way."""
        self._weather.commits_lost += 1
        if lands < 0.5:
            await self._store.commit(commit)
        raise AmbiguousCommitError("the store went away during the commit")

    async def _read_fault(self) -> None:
        chance = self._rng.random()
        await self._require_store()
        if chance < self._weather.faults.read_error:
            raise StoreUnavailableError("the store closed the connection")

    async def _require_store(self) -> None:
        if not self._is_away():
            return
        await self._clock.sleep(_OUTAGE_ANSWER.at(self._rng.random()))
        if self._is_away():
            self._weather.commits_failed += 1
            raise StoreUnavailableError("the store does not answer")

    def _is_away(self) -> bool:
        return self._weather.is_away or self.is_cut_off

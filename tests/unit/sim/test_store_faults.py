from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import cast

import pytest

from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.model.cluster import LeaderRecord
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    Commit,
    Committed,
    Expectation,
    Key,
    Put,
    StoreUnavailableError,
)
from persys_core.sim.agent_settings import Latency
from persys_core.sim.clock import VirtualClock
from persys_core.sim.rng import stream
from persys_core.sim.store_faults import FaultyStore, StoreFaults, StoreWeather
from persys_core.testing.virtual import virtual_time

KEY = Key.leader("e")


class Scene:
    """A backend behind weather that can be set."""

    def __init__(self, clock: VirtualClock, faults: StoreFaults | None = None) -> None:
        self.backend = MemoryClusterBackend()
        self.weather = StoreWeather(faults or StoreFaults())
        inner = MemoryClusterStore(self.backend)
        self.store = FaultyStore(inner, self.weather, clock, stream(1, "store"))

    async def write(self, name: str = "a") -> object:
        found = self.backend.read(KEY)
        expectation = Expectation(KEY, revision=found.revision if found else 0)
        return await self.store.commit(
            Commit((expectation,), (Put(KEY, LeaderRecord("e", name)),), name)
        )


@virtual_time()
async def test_fair_weather_changes_nothing(clock: VirtualClock) -> None:
    """Without faults it is the store behind it, at once."""
    scene = Scene(clock)
    assert await scene.write() == Committed(1)
    assert (await scene.store.get([KEY]))[KEY] == scene.backend.read(KEY)
    assert await scene.store.probe() == (await scene.store.snapshot()).revision == 1
    assert clock.monotonic() == 0


@virtual_time()
async def test_an_error_before_the_commit_leaves_nothing(clock: VirtualClock) -> None:
    """The commit was not done, and the writer may know it."""
    scene = Scene(clock, StoreFaults(error_before=1.0))
    with pytest.raises(StoreUnavailableError) as caught:
        await scene.write()
    assert not isinstance(caught.value, AmbiguousCommitError)
    assert scene.backend.revision == 0


@virtual_time()
async def test_an_error_after_the_commit_hides_that_it_was_done(clock: VirtualClock) -> None:
    """The commit was done, and the writer cannot tell."""
    scene = Scene(clock, StoreFaults(error_after=1.0))
    with pytest.raises(AmbiguousCommitError):
        await scene.write()
    assert scene.backend.revision == 1


@virtual_time()
async def test_nothing_answers_while_the_store_is_away(clock: VirtualClock) -> None:
    """Reads, probes and commits fail after a while; nothing is written."""
    scene = Scene(clock)
    scene.weather.is_away = True
    for call in (scene.store.snapshot(), scene.store.probe(), scene.store.get([KEY])):
        with pytest.raises(StoreUnavailableError):
            await call
    with pytest.raises(StoreUnavailableError):
        await scene.write()
    assert scene.backend.revision == 0
    assert clock.monotonic() > 0


@virtual_time()
async def test_a_replica_may_be_cut_off_alone(clock: VirtualClock) -> None:
    """What is away for one is there for the others."""
    scene = Scene(clock)
    other = FaultyStore(MemoryClusterStore(scene.backend), scene.weather, clock, stream(2, "store"))
    scene.store.is_cut_off = True
    with pytest.raises(StoreUnavailableError):
        await scene.store.probe()
    assert await other.probe() == 0


@virtual_time()
async def test_a_slow_commit_that_is_given_up_is_never_done_later(clock: VirtualClock) -> None:
    """A cancelled commit is done at that moment or not at all."""
    scene = Scene(clock, StoreFaults(slow=1.0, delay=Latency.of(2)))
    landed = 0
    for _ in range(20):
        before = scene.backend.revision
        writing = asyncio.ensure_future(scene.write())
        await clock.sleep(timedelta(seconds=1))
        writing.cancel()
        await asyncio.wait([writing])
        at_once = scene.backend.revision
        await clock.sleep(timedelta(seconds=5))
        assert scene.backend.revision == at_once
        landed += at_once - before
    assert 0 < landed < 20


@virtual_time()
async def test_an_outage_during_a_slow_commit_leaves_the_writer_in_doubt(
    clock: VirtualClock,
) -> None:
    """The answer is that nobody knows, whichever way it went."""
    scene = Scene(clock, StoreFaults(slow=1.0, delay=Latency.of(2)))
    outcomes = set()
    for _ in range(20):
        before = scene.backend.revision
        writing = asyncio.ensure_future(scene.write())
        await clock.sleep(timedelta(seconds=1))
        scene.weather.is_away = True
        with pytest.raises(AmbiguousCommitError):
            await writing
        scene.weather.is_away = False
        outcomes.add(scene.backend.revision - before)
    assert outcomes == {0, 1}


@virtual_time()
async def test_a_watch_is_late_and_stands_still_in_an_outage(clock: VirtualClock) -> None:
    """Events come in order, after the lag, and not before the store is back."""
    scene = Scene(clock, StoreFaults(watch_lag=Latency.of(3)))
    await scene.write()
    scene.weather.is_away = True
    watch = cast("AsyncGenerator[object, None]", scene.store.watch(0))
    async with aclosing(watch) as events:
        arriving = asyncio.ensure_future(anext(events))
        await clock.sleep(timedelta(seconds=10))
        assert not arriving.done()
        scene.weather.is_away = False
        await arriving
    assert clock.monotonic() >= 10


@virtual_time()
async def test_a_watch_may_be_interrupted(clock: VirtualClock) -> None:
    """The watcher is told and begins anew from what it knows."""
    scene = Scene(clock, StoreFaults(watch_error=1.0))
    await scene.write()
    with pytest.raises(StoreUnavailableError):
        await anext(scene.store.watch(0))

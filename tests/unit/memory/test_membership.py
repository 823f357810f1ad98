"""Elections where the store is slow, away or another one than memory."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta

import pytest

from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.membership import MemoryMembership
from persys_core.model.cluster import LeaderRecord
from persys_core.ports.cluster_store import (
    Commit,
    CommitResult,
    Key,
    Put,
    Record,
    StoreUnavailableError,
    Versioned,
)
from persys_core.testing.cluster_store_backend import commit_of, committed, read
from persys_core.testing.manual_clock import ManualClock, settle

TTL = timedelta(seconds=15)
ELECTION = "reconciler"


class TroubledStore(MemoryClusterStore):
    """A store that can be away, or hold commits back until a gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        self._check()
        return await super().get(keys)

    async def commit(self, commit: Commit) -> CommitResult:
        self._check()
        await self.gate.wait()
        return await super().commit(commit)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailableError("away")


class Scene:
    """Replicas on one hub, one store and one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.hub = ElectionHub()
        self.store = TroubledStore()

    def replica(self, instance_id: str) -> MemoryMembership:
        return MemoryMembership(self.hub, self.store, self.clock, instance_id, TTL)


@pytest.mark.asyncio
async def test_a_store_that_is_away_frees_the_election() -> None:
    """A replica that cannot write its record does not lead, and blocks nobody."""
    scene = Scene()
    one, two = scene.replica("one"), scene.replica("two")
    scene.store.is_away = True
    with pytest.raises(StoreUnavailableError):
        await one.campaign(ELECTION)
    scene.store.is_away = False
    leadership = await two.campaign(ELECTION)
    assert leadership.instance_id == "two"
    await two.resign(leadership)


@pytest.mark.asyncio
async def test_resigning_without_the_store_still_hands_over() -> None:
    """The record stays when the store is away; the next winner replaces it and fences the old."""
    scene = Scene()
    one, two = scene.replica("one"), scene.replica("two")
    leadership = await one.campaign(ELECTION)
    scene.store.is_away = True
    await one.resign(leadership)
    scene.store.is_away = False
    successor = await two.campaign(ELECTION)
    assert successor.epoch > leadership.epoch
    found = await read(scene.store, Key.leader(ELECTION))
    assert found is not None
    assert found.value == LeaderRecord(ELECTION, "two")
    await two.resign(successor)


@pytest.mark.asyncio
async def test_a_record_that_takes_too_long_is_no_win() -> None:
    """A lease that ran out while the record was written is no leadership; the next try is."""
    scene = Scene()
    one = scene.replica("one")
    scene.store.gate.clear()
    campaign = asyncio.create_task(one.campaign(ELECTION))
    await settle()
    one.stall()
    await scene.clock.advance(TTL * 2)
    scene.store.gate.set()
    await settle()
    assert not campaign.done()
    assert await read(scene.store, Key.leader(ELECTION)) is None
    one.resume()
    leadership = await campaign
    assert one.is_valid(leadership)
    await one.resign(leadership)


@pytest.mark.asyncio
async def test_a_record_of_a_former_life_is_replaced() -> None:
    """A record that a killed process left behind is removed first, so the epoch is a new one."""
    scene = Scene()
    left = await committed(
        scene.store,
        commit_of(Put(Key.leader(ELECTION), LeaderRecord(ELECTION, "dead"))),
    )
    one = scene.replica("one")
    leadership = await one.campaign(ELECTION)
    assert leadership.epoch > left
    await one.resign(leadership)


@pytest.mark.asyncio
async def test_a_dead_replica_hands_nothing_over() -> None:
    """After a crash the election is free when the lease has run out, not before."""
    scene = Scene()
    one, two = scene.replica("one"), scene.replica("two")
    await one.campaign(ELECTION)
    rival = asyncio.create_task(two.campaign(ELECTION))
    one.close()
    await scene.clock.advance(TTL * 0.6)
    assert not rival.done()
    await scene.clock.advance(TTL)
    leadership = await rival
    await two.resign(leadership)


@pytest.mark.asyncio
async def test_no_task_is_left_behind() -> None:
    """A replica that resigned or gave up has no task running."""
    scene = Scene()
    one, two = scene.replica("one"), scene.replica("two")
    leadership = await one.campaign(ELECTION)
    rival = asyncio.create_task(two.campaign(ELECTION))
    await settle()
    rival.cancel()
    await asyncio.wait([rival])
    await one.resign(leadership)
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}

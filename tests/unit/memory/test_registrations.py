"""Registrations of replicas that die, are cut off from their store, or whose store went back."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.membership import MemoryMembership
from persys_core.model.replica import ReplicaRecord, ShardAcknowledgement
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    Commit,
    CommitResult,
    Delete,
    Key,
    Kind,
    Put,
    Record,
    Snapshot,
    StoreUnavailableError,
    Versioned,
)
from persys_core.ports.membership import Leadership, RegistrationLostError
from persys_core.sim.clock import VirtualClock
from persys_core.testing.cluster_store_backend import commit_of
from persys_core.testing.manual_clock import settle
from persys_core.testing.virtual import virtual_time

TTL = timedelta(seconds=15)
MOMENT = timedelta(milliseconds=10)
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Troubled(MemoryClusterStore):
    """One way to the store, which can be away, late, or lose its answers."""

    def __init__(self, backend: MemoryClusterBackend) -> None:
        super().__init__(backend)
        self.is_away = False
        self.loses_answers = False
        self.refuses_removals = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        self._check()
        return await super().get(keys)

    async def commit(self, commit: Commit) -> CommitResult:
        self._check()
        if self.refuses_removals and any(isinstance(each, Delete) for each in commit.writes):
            raise StoreUnavailableError("no removals")
        await self.gate.wait()
        result = await super().commit(commit)
        if self.loses_answers:
            raise AmbiguousCommitError("nobody knows")
        return result

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailableError("away")


class Scene:
    """Replicas on one database, each with a way of its own to it."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.backend = MemoryClusterBackend()
        self.own_way = Troubled(self.backend)
        self.hub = ElectionHub(self.own_way)
        self.stores: dict[str, Troubled] = {}

    def replica(self, instance_id: str) -> MemoryMembership:
        store = self.stores[instance_id] = Troubled(self.backend)
        return MemoryMembership(self.hub, store, self.clock, instance_id, TTL)

    def standing(self) -> list[str]:
        """The coordination records of replicas."""
        keys = self.backend.snapshot().records
        return sorted(str(key) for key in keys if key.kind in {Kind.REPLICA, Kind.SHARD_ACK})


async def register(replica: MemoryMembership) -> Leadership:
    """Register it, now."""
    since_start = timedelta(seconds=asyncio.get_running_loop().time())
    return await replica.register(ReplicaRecord(replica.instance_id, AT + since_start))


@virtual_time()
async def test_the_records_of_a_dead_replica_stand_until_its_lease_ends(
    clock: VirtualClock,
) -> None:
    """A crash hands nothing over: record and acknowledgement vanish together at the deadline."""
    scene = Scene(clock)
    one = scene.replica("one")
    await one.acknowledge(await register(one), 3)
    one.close()
    await clock.sleep(TTL - MOMENT)
    assert scene.standing() == ["replica/one", "shard-ack/one"]
    await clock.sleep(MOMENT * 2)
    assert scene.standing() == []


@virtual_time()
async def test_a_replica_without_its_store_is_not_there(clock: VirtualClock) -> None:
    """A replica that is cut off loses its registration, by its own clock no later than the
    records vanish, and registers again when the store is back."""
    scene = Scene(clock)
    one, two = scene.replica("one"), scene.replica("two")
    held, other = await register(one), await register(two)
    await clock.sleep(TTL * 2)
    scene.stores["one"].is_away = True
    while scene.standing() != ["replica/two"]:
        await clock.sleep(timedelta(seconds=0.1))
        assert one.is_valid(held) <= ("replica/one" in scene.standing())
    assert clock.monotonic() <= (TTL * 3).total_seconds() + 0.2
    await one.lost(held)
    scene.stores["one"].is_away = False
    again = await register(one)
    assert again.epoch > held.epoch
    assert two.is_valid(other)


@virtual_time()
async def test_a_short_outage_costs_no_registration(clock: VirtualClock) -> None:
    """Renewals that fail for less than a lease are tried again (L03)."""
    scene = Scene(clock)
    one = scene.replica("one")
    held = await register(one)
    scene.stores["one"].is_away = True
    await clock.sleep(TTL * 0.9)
    scene.stores["one"].is_away = False
    await clock.sleep(TTL * 2)
    assert one.is_valid(held)


@virtual_time()
async def test_resigning_without_the_store_leaves_it_to_the_lease(clock: VirtualClock) -> None:
    """A replica that cannot say that it leaves is gone when its lease has run out; if it
    registers again before that, nothing of its former life is left."""
    scene = Scene(clock)
    one = scene.replica("one")
    held = await register(one)
    await one.acknowledge(held, 1)
    scene.stores["one"].is_away = True
    await one.resign(held)
    assert not one.is_valid(held)
    assert scene.standing() == ["replica/one", "shard-ack/one"]
    scene.stores["one"].is_away = False
    again = await register(one)
    assert scene.standing() == ["replica/one"]
    scene.stores["one"].is_away = True
    await one.resign(again)
    await clock.sleep(TTL + MOMENT)
    assert scene.standing() == []


@virtual_time()
async def test_what_a_killed_process_left_is_removed(clock: VirtualClock) -> None:
    """The first registration removes records that no lease holds; a live replica's stay."""
    scene = Scene(clock)
    scene.backend.apply(
        commit_of(
            Put(Key.replica("dead"), ReplicaRecord("dead", AT)),
            Put(Key.shard_ack("dead"), ShardAcknowledgement("dead", 9)),
            Put(Key.shard_ack("older"), ShardAcknowledgement("older", 8)),
        )
    )
    one, two = scene.replica("one"), scene.replica("two")
    await one.acknowledge(await register(one), 1)
    await register(two)
    assert scene.standing() == ["replica/one", "replica/two", "shard-ack/one"]


@virtual_time()
async def test_a_registration_of_which_nobody_knows(clock: VirtualClock) -> None:
    """A record that was put although the answer was lost is nobody's registration: it vanishes
    with its lease, and is in no way of another try."""
    scene = Scene(clock)
    one = scene.replica("one")
    scene.stores["one"].loses_answers = True
    with pytest.raises(AmbiguousCommitError):
        await register(one)
    assert scene.standing() == ["replica/one"]
    scene.stores["one"].loses_answers = False
    held = await register(one)
    await one.resign(held)
    scene.stores["one"].loses_answers = True
    with pytest.raises(AmbiguousCommitError):
        await register(one)
    await clock.sleep(TTL + MOMENT)
    assert scene.standing() == []


@virtual_time()
async def test_a_record_that_comes_after_its_lease(clock: VirtualClock) -> None:
    """A commit that takes longer than the lease registers nobody and leaves nothing."""
    scene = Scene(clock)
    one = scene.replica("one")
    scene.stores["one"].gate.clear()
    registering = asyncio.create_task(register(one))
    await settle()
    one.stall()
    await clock.sleep(TTL * 2)
    scene.stores["one"].gate.set()
    with pytest.raises(StoreUnavailableError, match="longer"):
        await registering
    await settle()
    assert scene.standing() == []


@virtual_time()
async def test_a_database_that_goes_back_takes_its_leases_along(clock: VirtualClock) -> None:
    """Data that is lost, or restored from a backup, ends the registrations that it does not have;
    what it has of dead replicas goes with the next registration."""
    scene = Scene(clock)
    one, two = scene.replica("one"), scene.replica("two")
    held, _ = await register(one), await register(two)
    backup = scene.backend.snapshot()
    scene.backend.restore(Snapshot(0, {}))
    two.close()
    await one.lost(held)
    again = await register(one)
    assert scene.standing() == ["replica/one"]
    await clock.sleep(TTL * 2)
    scene.backend.restore(backup)
    await one.lost(again)
    assert scene.standing() == ["replica/one", "replica/two"]
    with pytest.raises(RegistrationLostError):
        await one.acknowledge(again, 1)
    await register(one)
    assert scene.standing() == ["replica/one"]


@virtual_time()
async def test_the_end_is_seen_through(clock: VirtualClock) -> None:
    """Records that cannot be removed at the deadline are removed as soon as they can be."""
    scene = Scene(clock)
    one = scene.replica("one")
    await register(one)
    one.close()
    scene.own_way.refuses_removals = True
    await clock.sleep(TTL * 2)
    assert scene.standing() == ["replica/one"]
    scene.own_way.refuses_removals = False
    await clock.sleep(timedelta(seconds=2))
    assert scene.standing() == []


@virtual_time()
async def test_the_stalled_register_when_they_go_on(clock: VirtualClock) -> None:
    """A stopped process neither registers nor acknowledges."""
    scene = Scene(clock)
    one = scene.replica("one")
    one.stall()
    registering = asyncio.create_task(register(one))
    await clock.sleep(TTL)
    assert scene.standing() == []
    one.resume()
    held = await registering
    one.stall()
    word = asyncio.create_task(one.acknowledge(held, 1))
    await clock.sleep(TTL * 2)
    assert not word.done()
    one.resume()
    with pytest.raises(RegistrationLostError):
        await word


@virtual_time()
async def test_nothing_goes_on_after_the_end(clock: VirtualClock) -> None:
    """A replica that resigned, and a database that is closed, leave no task behind."""
    scene = Scene(clock)
    one, two = scene.replica("one"), scene.replica("two")
    held = await register(one)
    await register(two)
    await one.resign(held)
    two.close()
    scene.hub.close()
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}

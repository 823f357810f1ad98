"""Elections whose epochs stand in the embedded store, or on the key-value contract."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from persys_adapters.kv.cluster_store import KvClusterStore
from persys_adapters.kv.dict_kv import DictKv
from persys_adapters.sqlite.cluster_store import SqliteClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.membership import MemoryMembership
from persys_core.model.replica import ReplicaRecord
from persys_core.ports.cluster_store import ClusterStore, Guarantee, Key
from persys_core.ports.membership import Membership
from persys_core.testing.cluster_store_backend import read
from persys_core.testing.manual_clock import ManualClock, settle
from persys_core.testing.membership import MembershipCluster, MembershipContract

ROUND_TRIPS = 6
STEPS_PER_TTL = 6


class SharedStoreCluster(MembershipCluster):
    """Replicas in one process; time passes only when the store has answered everything."""

    ttl = timedelta(seconds=15)

    def __init__(self, store: ClusterStore) -> None:
        self.clock = ManualClock()
        self.hub = ElectionHub()
        self._store = store
        self.replicas: list[MemoryMembership] = []

    @property
    def store(self) -> ClusterStore:
        return self._store

    async def join(self, instance_id: str) -> Membership:
        self.replicas.append(
            MemoryMembership(self.hub, self._store, self.clock, instance_id, self.ttl)
        )
        return self.replicas[-1]

    async def stall(self, membership: Membership) -> None:
        self._own(membership).stall()

    async def resume(self, membership: Membership) -> None:
        self._own(membership).resume()

    async def advance(self, duration: timedelta) -> None:
        # A renewal asks the store, and one that is not answered in its time is none.
        await self._answered()
        left, step = duration, self.ttl / STEPS_PER_TTL
        while left > timedelta(0):
            await self.clock.advance(min(step, left))
            await self._answered()
            left -= step

    async def close(self) -> None:
        for replica in self.replicas:
            replica.close()
        self.hub.close()
        await self._answered()

    async def _answered(self) -> None:
        for _ in range(ROUND_TRIPS):
            await self._store.probe()
            await settle()

    def _own(self, membership: Membership) -> MemoryMembership:
        return next(replica for replica in self.replicas if replica is membership)


class TestMembershipOnSqlite(MembershipContract):
    @pytest_asyncio.fixture
    async def cluster(self, tmp_path: Path) -> AsyncIterator[MembershipCluster]:
        store = await SqliteClusterStore.open(tmp_path / "store.db")
        yield SharedStoreCluster(store)
        await store.aclose()

    async def test_records_of_a_killed_process_are_removed(self, tmp_path: Path) -> None:
        """A process that ended without a word leaves its records in the file; the next one removes
        them when it registers, since no lease of a former process is left."""
        path, clock = tmp_path / "killed.db", ManualClock()
        store = await SqliteClusterStore.open(path)
        hub = ElectionHub(store)
        former = MemoryMembership(hub, store, clock, "former")
        await former.acknowledge(await former.register(ReplicaRecord("former", clock.now())), 1)
        former.close()
        hub.close()
        await store.aclose()
        store = await SqliteClusterStore.open(path)
        assert await read(store, Key.replica("former")) is not None
        hub = ElectionHub(store)
        next_one = MemoryMembership(hub, store, clock, "next")
        held = await next_one.register(ReplicaRecord("next", clock.now()))
        assert await read(store, Key.replica("former")) is None
        assert await read(store, Key.shard_ack("former")) is None
        assert await read(store, Key.replica("next")) is not None
        await next_one.resign(held)
        await store.aclose()


class TestMembershipOnKv(MembershipContract):
    @pytest.fixture
    def cluster(self) -> MembershipCluster:
        return SharedStoreCluster(KvClusterStore(DictKv(), Guarantee.CAS | Guarantee.SHARED))

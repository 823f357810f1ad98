"""Node leases in etcd keep the contract, in real time, and cost the store nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import pytest_asyncio

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_adapters.etcd.liveness import EtcdLiveness
from persys_adapters.system_clock import SystemClock
from persys_core.ports.clock import Clock
from persys_core.ports.liveness import Liveness
from persys_core.testing.clock import Advance
from persys_core.testing.liveness import LivenessContract
from tests.servers.etcd import EtcdCluster

pytestmark = pytest.mark.slow

LEASE = timedelta(seconds=4)
"""etcd grants two seconds at least, and may be a good half of one late in ending a lease."""
PATIENCE_SECONDS = 20.0


@asynccontextmanager
async def following(
    config: EtcdConfig, prefix: str, *, lease: timedelta = LEASE
) -> AsyncIterator[EtcdLiveness]:
    """One replica's node leases."""
    async with EtcdClient(config) as client:
        liveness = EtcdLiveness(
            client, SystemClock(), lease=lease, interval=lease / 3, prefix=prefix
        )
        liveness.start()
        try:
            yield liveness
        finally:
            await liveness.aclose()


@pytest.fixture
def prefix() -> str:
    return f"/live-{uuid.uuid4().hex[:12]}"


async def until(liveness: EtcdLiveness, node_id: str, *, alive: bool) -> None:
    """Wait until it counts as that."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while liveness.is_alive(node_id) is not alive:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class TestEtcdLiveness(LivenessContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()

    @pytest.fixture
    def advance(self) -> Advance:
        async def pass_time(duration: timedelta) -> None:
            await asyncio.sleep(duration.total_seconds())

        return pass_time

    @pytest.fixture
    def lease(self) -> timedelta:
        return LEASE

    @pytest_asyncio.fixture
    async def liveness(self, etcd_config: EtcdConfig, prefix: str) -> AsyncIterator[Liveness]:
        async with following(etcd_config, prefix) as liveness:
            yield liveness


async def _revision(cluster: EtcdCluster) -> int:
    async with EtcdClient(EtcdConfig(cluster.endpoints)) as client:
        return (await client.range(b"x")).revision


@pytest.mark.asyncio
async def test_steady_beats_move_no_revision(etcd_alone: EtcdCluster) -> None:
    """A hundred nodes that beat cost one put each, however long they go on."""
    nodes = [f"n{number}" for number in range(100)]
    async with following(EtcdConfig(etcd_alone.endpoints), "") as liveness:
        for node_id in nodes:
            await liveness.touch(node_id, LEASE)
        await asyncio.sleep(0.5)
        before = await _revision(etcd_alone)
        for _ in range(10):
            for node_id in nodes:
                await liveness.touch(node_id, LEASE)
            await asyncio.sleep(0.7)
        assert before == await _revision(etcd_alone) == len(nodes) + 1
        assert all(map(liveness.is_alive, nodes))


@pytest.mark.asyncio
async def test_any_replica_keeps_a_node_alive(etcd_config: EtcdConfig, prefix: str) -> None:
    """A node that is heard here and there in turn has one lease, and every replica sees it."""
    async with following(etcd_config, prefix) as one, following(etcd_config, prefix) as two:
        for turn in range(10):
            await (one, two)[turn % 2].touch("n1", LEASE)
            await asyncio.sleep(LEASE.total_seconds() * 0.3)
            assert one.is_alive("n1")
            assert two.is_alive("n1")
        await until(one, "n1", alive=False)
        await until(two, "n1", alive=False)


@pytest.mark.asyncio
async def test_a_replica_that_starts_finds_who_is_alive(
    etcd_config: EtcdConfig, prefix: str
) -> None:
    """The leases of its former life, or of other replicas, are taken over and renewed."""
    long = timedelta(seconds=30)
    async with following(etcd_config, prefix, lease=long) as first:
        await first.touch("n1", long)
        await asyncio.sleep(0.3)
    async with following(etcd_config, prefix) as second:
        await asyncio.sleep(LEASE.total_seconds() * 1.5)
        assert second.is_alive("n1")
        assert not second.is_alive("never-heard")
        assert second.last_seen("n1") is None


@pytest.mark.asyncio
async def test_a_beat_waits_for_no_server(etcd_alone: EtcdCluster) -> None:
    """While etcd answers nothing a beat takes no time, and counts here."""
    async with following(EtcdConfig(etcd_alone.endpoints), "") as liveness:
        await liveness.touch("n1", LEASE)
        await asyncio.sleep(0.3)
        etcd_alone.members[0].pause()
        try:
            began = asyncio.get_running_loop().time()
            for _ in range(1000):
                await liveness.touch("n1", LEASE)
                await liveness.touch("n2", LEASE)
            assert asyncio.get_running_loop().time() - began < 1
            assert liveness.is_alive("n2")
        finally:
            etcd_alone.members[0].resume()


@pytest.mark.asyncio
async def test_what_etcd_was_not_told_is_not_confirmed(etcd_alone: EtcdCluster) -> None:
    """While etcd is away a beat is a sign of life here, and no other replica knows of it."""
    async with following(EtcdConfig(etcd_alone.endpoints), "") as liveness:
        await liveness.touch("n1", LEASE)
        await until(liveness, "n1", alive=True)
        etcd_alone.members[0].pause()
        try:
            for _ in range(6):
                await asyncio.sleep(LEASE.total_seconds() / 5)
                await liveness.touch("n1", LEASE)
            assert liveness.is_alive("n1")
            assert liveness.confirmed("n1") == timedelta(0)
        finally:
            etcd_alone.members[0].resume()


@pytest.mark.asyncio
async def test_an_outage_of_ours_is_no_silence_of_theirs(etcd_alone: EtcdCluster) -> None:
    """Whoever could not be heard since etcd was cut off from us has a full lease after it (N01)."""
    async with following(EtcdConfig(etcd_alone.endpoints), "") as liveness:
        await liveness.touch("n1", LEASE)
        await asyncio.sleep(0.3)
        etcd_alone.members[0].pause()
        await asyncio.sleep(LEASE.total_seconds() * 2)
        assert liveness.is_alive("n1")
        etcd_alone.members[0].resume()
        for _ in range(10):
            assert liveness.is_alive("n1")
            await asyncio.sleep(LEASE.total_seconds() * 0.08)
        await until(liveness, "n1", alive=False)


@pytest.mark.asyncio
async def test_a_key_without_a_lease_keeps_no_node_alive(
    etcd_config: EtcdConfig, prefix: str
) -> None:
    """Such a key was copied: it would stand for ever. The next beat replaces it."""
    key = f"{prefix}/persys/live/n1".encode()
    async with EtcdClient(etcd_config) as client:
        await client.put(key, b"")
        async with following(etcd_config, prefix) as liveness:
            await until(liveness, "n1", alive=False)
            await liveness.touch("n1", LEASE)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (await client.range(key)).kvs[0].lease:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await until(liveness, "n1", alive=False)

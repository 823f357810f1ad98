"""Elections on etcd keep the contract, in real time."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from attrs import define

from persys_adapters.etcd.client import EtcdClient, EtcdConfig, EtcdError, end_of_prefix
from persys_adapters.etcd.cluster_store import EtcdClusterStore
from persys_adapters.etcd.membership import EtcdMembership
from persys_adapters.system_clock import SystemClock
from persys_core.model.replica import ReplicaRecord, ShardAcknowledgement
from persys_core.ports.cluster_store import ClusterStore, Key
from persys_core.ports.membership import Membership
from persys_core.testing.cluster_store_backend import put, read
from persys_core.testing.membership import MembershipCluster, MembershipContract
from persys_core.testing.membership_cluster import closing
from tests.servers.line import Line

pytestmark = pytest.mark.slow


@define
class _Replica:
    """A replica behind a line of its own, which stops with it."""

    membership: EtcdMembership
    client: EtcdClient
    line: Line


class EtcdElections(MembershipCluster):
    """Replicas on one server; a stalled one is behind a line that carries nothing."""

    ttl = timedelta(seconds=3)

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self.prefix = f"/elect-{uuid.uuid4().hex[:12]}"
        self._client = EtcdClient(config)
        self._store = EtcdClusterStore(self._client, prefix=self.prefix)
        self._replicas: list[_Replica] = []

    @property
    def store(self) -> ClusterStore:
        return self._store

    async def join(self, instance_id: str) -> Membership:
        line = await Line.to(self._config.endpoints[0])
        client = EtcdClient(EtcdConfig((line.endpoint,)))
        membership = EtcdMembership(
            client, SystemClock(), instance_id, ttl=self.ttl, prefix=self.prefix
        )
        self._replicas.append(_Replica(membership, client, line))
        return membership

    async def stall(self, membership: Membership) -> None:
        self._of(membership).line.hold()

    async def resume(self, membership: Membership) -> None:
        self._of(membership).line.go_on()

    async def advance(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())

    async def close(self) -> None:
        for replica in self._replicas:
            replica.line.go_on()
            with suppress(EtcdError):
                await replica.membership.aclose()
            await replica.client.aclose()
            await replica.line.aclose()
        prefix = self.prefix.encode()
        await self._client.delete(prefix, end_of_prefix(prefix))
        await self._client.aclose()

    def membership_of(self, membership: Membership) -> EtcdMembership:
        """The same with all that it can."""
        return self._of(membership).membership

    def _of(self, membership: Membership) -> _Replica:
        return next(each for each in self._replicas if each.membership is membership)


class TestMembershipOnEtcd(MembershipContract):
    @pytest_asyncio.fixture
    async def cluster(self, etcd_config: EtcdConfig) -> AsyncIterator[MembershipCluster]:
        yield EtcdElections(etcd_config)

    async def test_a_copied_key_leads_nothing(
        self, cluster: MembershipCluster, etcd_config: EtcdConfig
    ) -> None:
        """A key without a lease is no candidate's; it would lead for ever."""
        assert isinstance(cluster, EtcdElections)
        async with EtcdClient(etcd_config) as client:
            await client.put(f"{cluster.prefix}/persys/scheduler/leader/e/0old".encode(), b"old")
        one = await cluster.join("one")
        async with asyncio.timeout(20):
            leadership = await one.campaign("e")
        assert await one.leader("e") == "one"
        assert one.is_valid(leadership)
        await cluster.close()

    async def test_elections_in_folders_below_are_others(self, cluster: MembershipCluster) -> None:
        """Who leads the unnamed election, whose keys stand right under the prefix, is not decided
        by the keys of the named ones, which stand in folders there."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            async with asyncio.timeout(20):
                named = await one.campaign("coordinator")
                unnamed = await two.campaign("scheduler")
                assert await one.leader("scheduler") == "two"
                assert await one.leader("coordinator") == "one"
            assert named.epoch < unnamed.epoch

    async def test_a_copied_record_is_replaced(
        self, cluster: MembershipCluster, etcd_config: EtcdConfig
    ) -> None:
        """A record without a lease, from a restored backup, would be a replica for ever."""
        assert isinstance(cluster, EtcdElections)
        async with closing(cluster):
            record = ReplicaRecord("one", datetime(2026, 1, 1, tzinfo=UTC))
            old = await put(cluster.store, Key.replica("one"), record)
            await put(cluster.store, Key.shard_ack("one"), ShardAcknowledgement("one", 1))
            one = await cluster.join("one")
            registration = await one.register(record)
            assert registration.epoch > old
            assert await read(cluster.store, Key.shard_ack("one")) is None
            async with EtcdClient(etcd_config) as client:
                found = await client.range(f"{cluster.prefix}/persys/replicas/one".encode())
            assert [bool(kv.lease) for kv in found.kvs] == [True]

    async def test_leaving_does_not_wait_for_etcd(self, cluster: MembershipCluster) -> None:
        """With an etcd that answers nothing a replica with two leases leaves, and a campaign is
        called off, within a couple of seconds."""
        assert isinstance(cluster, EtcdElections)
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            leading = await one.campaign("e")
            await two.register(ReplicaRecord("two", datetime(2026, 1, 1, tzinfo=UTC)))
            campaign = asyncio.create_task(two.campaign("e"))
            await asyncio.sleep(0.5)
            await cluster.stall(two)
            campaign.cancel()
            async with asyncio.timeout(4.0):
                await asyncio.wait([campaign])
            async with asyncio.timeout(3.0):
                await cluster.membership_of(two).aclose()
            assert one.is_valid(leading)

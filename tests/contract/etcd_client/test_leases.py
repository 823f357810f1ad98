"""Leases on a real etcd."""

import asyncio
from contextlib import aclosing

import pytest

from persys_adapters.etcd.client import (
    EtcdClient,
    EtcdConfig,
    LeaseExistsError,
    LeaseLostError,
    WatchBatch,
)
from tests.contract.etcd_client.support import client_of
from tests.servers.etcd import EtcdCluster
from tests.servers.line import line_to

MANY = 1000


@pytest.mark.asyncio
async def test_a_lease_ends_and_takes_its_keys(etcd_server: EtcdCluster) -> None:
    """A revoked lease is gone with its keys, which a watch sees; revoking it again says so."""
    async with client_of(etcd_server) as client:
        lease = await client.lease_grant(60)
        put = await client.put(b"/lease/a", b"1", lease=lease.id)
        told = await client.lease_time_to_live(lease.id, keys=True)
        assert (told.granted_ttl, told.keys) == (60, (b"/lease/a",))
        assert await client.lease_revoke(lease.id)
        assert not await client.lease_revoke(lease.id)
        async with aclosing(client.watch(b"/lease/a", start_revision=put.revision + 1)) as gone:
            item = await anext(gone)
        for lost in (client.keep_alive, client.lease_time_to_live):
            with pytest.raises(LeaseLostError):
                await lost(lease.id)
    assert isinstance(item, WatchBatch)
    assert [event.is_delete for event in item.events] == [True]


@pytest.mark.asyncio
async def test_a_lease_id_of_ones_own_is_given_once(etcd_server: EtcdCluster) -> None:
    """An id that is taken is refused; without one every lease has another."""
    async with client_of(etcd_server) as client:
        lease = await client.lease_grant(60, 4711)
        assert lease.id == 4711
        with pytest.raises(LeaseExistsError):
            await client.lease_grant(60, 4711)
        first, second = await client.lease_grant(60), await client.lease_grant(60)
        assert first.id != second.id


@pytest.mark.asyncio
async def test_an_unrenewed_lease_is_lost_after_its_deadline_not_before(
    etcd_server: EtcdCluster,
) -> None:
    """The local deadline is never later than etcd's: at it the key still stands; later it goes."""
    loop = asyncio.get_running_loop()
    async with client_of(etcd_server) as client:
        lease = await client.lease_grant(2)
        put = await client.put(b"/lease/short", b"1", lease=lease.id)
        async with aclosing(client.watch(b"/lease/short", start_revision=put.revision)) as seen:
            await anext(seen)
            async with asyncio.timeout(10):
                item = await anext(seen)
            assert loop.time() >= lease.deadline
    assert isinstance(item, WatchBatch)
    assert item.events[0].is_delete


@pytest.mark.slow
@pytest.mark.asyncio
async def test_many_leases_are_renewed_over_one_connection(etcd_server: EtcdCluster) -> None:
    """A thousand leases are renewed at once, over one connection, each with its own deadline."""
    async with (
        line_to(etcd_server.endpoints[0]) as line,
        EtcdClient(EtcdConfig((line.endpoint,))) as client,
    ):
        leases = await asyncio.gather(*(client.lease_grant(60) for _ in range(MANY)))
        before = asyncio.get_running_loop().time()
        deadlines = await asyncio.gather(*(client.keep_alive(lease.id) for lease in leases))
        assert min(deadlines) >= before + 60
        line.cut()
        await asyncio.gather(*(client.keep_alive(lease.id) for lease in leases))
        assert line.connections == 2
        await asyncio.gather(*(client.lease_revoke(lease.id) for lease in leases))

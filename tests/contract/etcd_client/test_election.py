"""Elections on a real etcd, with etcdctl as the stranger."""

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from persys_adapters.etcd.client import (
    Compare,
    EtcdClient,
    LeadershipLostError,
    LeaseLostError,
    Put,
)
from persys_adapters.etcd.client.election import (
    LeaderKey,
    campaign,
    candidate_key,
    leader,
    observe,
    proclaim,
    resign,
)
from tests.contract.etcd_client.support import client_of
from tests.servers.etcd import EtcdCluster, etcd_binary


async def stand(client: EtcdClient, prefix: bytes, name: bytes) -> asyncio.Task[LeaderKey]:
    """A campaign under a lease of its own that has entered its key."""
    lease = await client.lease_grant(60)
    task = asyncio.create_task(campaign(client, prefix, lease.id, name))
    await appeared(client, candidate_key(prefix, lease.id))
    return task


async def appeared(client: EtcdClient, key: bytes) -> None:
    """Wait for a key."""
    async with asyncio.timeout(10), aclosing(client.watch(key, start_revision=1)) as watching:
        await anext(watching)


@pytest.mark.asyncio
async def test_one_leads_at_a_time_in_the_order_of_arrival(etcd_server: EtcdCluster) -> None:
    """The next candidate is elected when, and only when, those before it are gone."""
    prefix = b"/order"
    async with client_of(etcd_server) as client:
        tasks = [await stand(client, prefix, name) for name in (b"a", b"b", b"c")]
        revisions = []
        for number, task in enumerate(tasks):
            async with asyncio.timeout(10):
                won = await task
            assert not any(later.done() for later in tasks[number + 1 :])
            revisions.append(won.create_revision)
            assert await resign(client, won)
            assert not await resign(client, won)
    assert revisions == sorted(revisions)


@pytest.mark.asyncio
async def test_the_fence_holds_only_for_the_leader_it_names(etcd_server: EtcdCluster) -> None:
    """After the lease is gone a transaction with the old fence is refused, and so is proclaiming,
    though another leads under the same prefix (field report L01)."""
    prefix = b"/fence"
    async with client_of(etcd_server) as client:
        first = await (await stand(client, prefix, b"a"))
        assert (await client.txn([first.fence], [Put(b"/fenced", b"1")])).succeeded
        await proclaim(client, first, b"a2")
        await client.lease_revoke(first.lease_id)
        await (await stand(client, prefix, b"b"))
        assert not (await client.txn([first.fence], [Put(b"/fenced", b"2")])).succeeded
        with pytest.raises(LeadershipLostError):
            await proclaim(client, first, b"a3")
        seen = await leader(client, prefix)
    assert seen is not None
    assert seen.value == b"b"


@pytest.mark.asyncio
async def test_campaigning_again_keeps_the_place(etcd_server: EtcdCluster) -> None:
    """A candidate that stands again under its lease keeps its fence; only the value is new."""
    async with client_of(etcd_server) as client:
        lease = await client.lease_grant(60)
        first = await campaign(client, b"/again", lease.id, b"a")
        again = await campaign(client, b"/again", lease.id, b"b")
        seen = await leader(client, b"/again")
    assert again == first
    assert seen is not None
    assert (seen.value, seen.lease) == (b"b", lease.id)


@pytest.mark.asyncio
async def test_a_lost_lease_ends_the_campaign(etcd_server: EtcdCluster) -> None:
    """A candidate whose lease is revoked is told so, and does not wait for ever."""
    prefix = b"/lost"
    async with client_of(etcd_server) as client:
        await (await stand(client, prefix, b"a"))
        lease = await client.lease_grant(60)
        task = asyncio.create_task(campaign(client, prefix, lease.id, b"b"))
        async with asyncio.timeout(10):
            await appeared(client, candidate_key(prefix, lease.id))
            await client.lease_revoke(lease.id)
            with pytest.raises(LeaseLostError):
                await task


@pytest.mark.asyncio
async def test_a_lost_session_races_the_campaign(etcd_server: EtcdCluster) -> None:
    """When the keeper of the lease says that it is lost, the campaign ends and leaves no key."""
    prefix, lost = b"/session", asyncio.Event()
    async with client_of(etcd_server) as client:
        await (await stand(client, prefix, b"a"))
        lease = await client.lease_grant(60)
        task = asyncio.create_task(campaign(client, prefix, lease.id, b"b", session_lost=lost))
        async with asyncio.timeout(10):
            await appeared(client, candidate_key(prefix, lease.id))
            lost.set()
            with pytest.raises(LeaseLostError, match="session"):
                await task
        assert not (await client.range(candidate_key(prefix, lease.id))).kvs


@pytest.mark.asyncio
async def test_a_cancelled_campaign_leaves_no_key(etcd_server: EtcdCluster) -> None:
    """Whoever gives up waiting stands in nobody's way."""
    prefix = b"/cancelled"
    async with client_of(etcd_server) as client:
        first = await (await stand(client, prefix, b"a"))
        second = await stand(client, prefix, b"b")
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await resign(client, first)
        assert await leader(client, prefix) is None


@pytest.mark.asyncio
async def test_observers_see_who_leads(etcd_server: EtcdCluster) -> None:
    """Nobody, the first leader, its new value, its successor: each is shown."""
    prefix = b"/observed"
    async with client_of(etcd_server) as client, aclosing(observe(client, prefix)) as seen:
        async with asyncio.timeout(10):
            assert await anext(seen) is None
            first = await (await stand(client, prefix, b"a"))
            values = [getattr(await anext(seen), "value", None)]
            await proclaim(client, first, b"a2")
            values.append(getattr(await anext(seen), "value", None))
            await stand(client, prefix, b"b")
            await resign(client, first)
            values.append(getattr(await anext(seen), "value", None))
    assert values == [b"a", b"a2", b"b"]


@pytest.mark.asyncio
async def test_strangers_of_the_protocol_exclude_us(etcd_server: EtcdCluster) -> None:
    """While etcdctl holds the election we wait, and when it ends we lead (decisions §4)."""
    prefix = b"/stranger"
    command = [str(etcd_binary("etcdctl")), "--endpoints", etcd_server.endpoints[0]]
    async with client_of(etcd_server) as client:
        other = await asyncio.create_subprocess_exec(
            *command, "elect", "/stranger", "them", stdout=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(10), aclosing(observe(client, prefix)) as seen:
                theirs = await anext(seen) or await anext(seen)
                assert theirs is not None
                task = await stand(client, prefix, b"us")
                assert not task.done()
                assert theirs.value == b"them"
                assert Path(theirs.key.decode()).name == f"{theirs.lease:x}"
                other.terminate()
                won = await task
        finally:
            with suppress(ProcessLookupError):
                other.kill()
            await other.wait()
        assert (await client.txn([won.fence], [Put(b"/x", b"")])).succeeded
        assert won.fence == Compare(won.key, create_revision=won.create_revision)

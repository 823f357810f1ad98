"""Watches on a real etcd: through cuts, compaction and losses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta

import pytest

from persys_adapters.etcd.client import (
    DeleteKey,
    EtcdClient,
    EtcdConfig,
    Put,
    WatchBatch,
    WatchCompacted,
    WatchEvent,
    WatchRewound,
    end_of_prefix,
)
from tests.contract.etcd_client.support import client_of
from tests.servers.etcd import EtcdCluster
from tests.servers.line import Line, line_to

EVENTS = 6000
WRITERS = 40


async def write(client: EtcdClient, prefix: bytes, count: int) -> list[int]:
    """Write ``count`` keys, many at a time; their revisions in order."""
    revisions: list[int] = []

    async def some(first: int) -> None:
        for number in range(first, count, WRITERS):
            revisions.append((await client.put(prefix + b"%06d" % number, b"x")).revision)

    await asyncio.gather(*map(some, range(WRITERS)))
    return sorted(revisions)


async def revisions_of(watching: AsyncIterator[WatchEvent], count: int) -> list[int]:
    """The revisions of the next ``count`` items."""
    found = []
    for _ in range(count):
        item = await anext(watching)
        assert isinstance(item, WatchBatch), item
        found.append(item.revision)
    return found


async def cut_often(line: Line) -> None:
    """Drop the line's connections again and again."""
    while True:
        await asyncio.sleep(0.15)
        line.cut()


@pytest.mark.asyncio
async def test_nothing_is_lost_or_doubled_while_the_line_is_cut(etcd_alone: EtcdCluster) -> None:
    """Thousands of events written while the watch is cut again and again are each seen once, in
    order."""
    prefix = b"/cut/"
    async with (
        client_of(etcd_alone) as writer,
        line_to(etcd_alone.endpoints[0]) as line,
        EtcdClient(EtcdConfig((line.endpoint,))) as reader,
    ):
        cutting = asyncio.create_task(cut_often(line))
        first = (await writer.range(prefix)).revision + 1
        async with aclosing(reader.watch(prefix, end_of_prefix(prefix), first)) as watching:
            reading = asyncio.create_task(revisions_of(watching, EVENTS))
            written = await write(writer, prefix, EVENTS)
            async with asyncio.timeout(30):
                found = await reading
        cutting.cancel()
        await asyncio.gather(cutting, return_exceptions=True)
    assert found == written
    assert line.connections > 5


@pytest.mark.asyncio
async def test_a_transaction_is_one_batch(etcd_server: EtcdCluster) -> None:
    """Puts and deletions of one transaction come together; deletions by lease too."""
    prefix = b"/batch/"
    async with (
        client_of(etcd_server) as client,
        aclosing(client.watch(prefix, end_of_prefix(prefix))) as watching,
    ):
        await reached(watching)
        lease = await client.lease_grant(60)
        await client.put(prefix + b"a", b"1", lease=lease.id)
        done = await client.txn(
            (), [DeleteKey(prefix + b"a"), *(Put(prefix + b"%d" % n, b"") for n in range(9))]
        )
        await client.lease_revoke(lease.id)
        async with asyncio.timeout(5):
            first, second = await anext(watching), await anext(watching)
    assert isinstance(first, WatchBatch)
    assert isinstance(second, WatchBatch)
    [event] = first.events
    assert (event.key, event.kv.value, event.kv.lease) == (prefix + b"a", b"1", lease.id)
    assert second.revision == done.revision
    assert [each.is_delete for each in second.events].count(True) == 1
    assert len(second.events) == 10


async def reached(watching: object) -> None:
    """Wait until a watch from now has its beginning."""
    async with asyncio.timeout(5):
        while not getattr(watching, "next_revision", 0):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_compaction_during_a_pause_is_told(etcd_alone: EtcdCluster) -> None:
    """A watch that was cut off while its next revisions were compacted ends with that, and the
    listing then shows what is true, a key that was deleted meanwhile left out (E01)."""
    prefix = b"/gone/"
    async with (
        client_of(etcd_alone) as writer,
        line_to(etcd_alone.endpoints[0]) as line,
        EtcdClient(EtcdConfig((line.endpoint,))) as reader,
    ):
        await writer.put(prefix + b"a", b"1")
        first = await writer.put(prefix + b"b", b"1")
        watching = reader.watch(prefix, end_of_prefix(prefix), first.revision)
        async with aclosing(watching), asyncio.timeout(10):
            assert isinstance(await anext(watching), WatchBatch)
            line.refuses = True
            line.cut()
            await writer.delete(prefix + b"a")
            last = await writer.put(prefix + b"c", b"1")
            await writer.compact(last.revision, physical=True)
            line.refuses = False
            assert await anext(watching) == WatchCompacted(last.revision)
            assert await anext(watching, None) is None
        found = await reader.range(prefix, end_of_prefix(prefix))
    assert [kv.key for kv in found.kvs] == [prefix + b"b", prefix + b"c"]


@pytest.mark.asyncio
async def test_a_replaced_store_is_told(etcd_alone: EtcdCluster, etcd_server: EtcdCluster) -> None:
    """When another cluster answers at the endpoint, a watch ends with that, and reads and writes
    show the other cluster id (E03)."""
    prefix = b"/replaced/"
    async with (
        client_of(etcd_alone) as first,
        client_of(etcd_server) as second,
        line_to(etcd_alone.endpoints[0]) as line,
        EtcdClient(EtcdConfig((line.endpoint,))) as client,
    ):
        for number in range(50):
            await first.put(prefix + b"%d" % number, b"1")
        old, new = await first.range(prefix), await second.range(prefix)
        async with aclosing(client.watch(prefix, end_of_prefix(prefix), 1)) as watching:
            async with asyncio.timeout(10):
                await revisions_of(watching, 50)
                assert (await client.range(prefix)).cluster_id == watching.cluster_id
                line.lead_to(etcd_server.endpoints[0])
                line.cut()
                last = await anext(watching)
                assert await anext(watching, None) is None
        assert isinstance(last, WatchRewound)
        assert last.cluster_id == new.cluster_id == (await client.range(prefix)).cluster_id
        assert last.cluster_id != old.cluster_id


@pytest.mark.asyncio
async def test_a_half_open_line_is_left(etcd_server: EtcdCluster) -> None:
    """When a line stays open and carries nothing any more, the watch is on another one within its
    idle timeout, with every event; and its age tells of the time in between (E02)."""
    prefix, idle = b"/half/", timedelta(seconds=1)
    direct = etcd_server.endpoints[0]
    async with client_of(etcd_server) as writer, line_to(direct) as line:
        config = EtcdConfig((line.endpoint, direct), watch_idle_timeout=idle)
        async with (
            EtcdClient(config) as client,
            aclosing(client.watch(prefix, end_of_prefix(prefix))) as watching,
            asyncio.timeout(10),
        ):
            await reached(watching)
            line.hold()
            heard_at = watching.last_heard_at
            written = await write(writer, prefix, 100)
            assert watching.last_heard_at == heard_at
            assert await revisions_of(watching, 100) == written
            assert watching.last_heard_at > heard_at


@pytest.mark.asyncio
async def test_a_quiet_watch_is_proven_alive(etcd_server: EtcdCluster) -> None:
    """A real etcd answers progress requests: a watch without events keeps its line and is young."""
    idle = timedelta(seconds=0.4)
    async with (
        line_to(etcd_server.endpoints[0]) as line,
        EtcdClient(EtcdConfig((line.endpoint,))) as client,
        aclosing(client.watch(b"/quiet", idle_timeout=idle)) as watching,
    ):
        await reached(watching)
        await asyncio.sleep(1.5)
        age = asyncio.get_running_loop().time() - watching.last_heard_at
    assert age < 1.4
    assert line.connections == 1


@pytest.mark.asyncio
async def test_a_watch_from_the_past_catches_up(etcd_server: EtcdCluster) -> None:
    """A backlog comes whole, in order, and goes over into what happens now without a gap."""
    prefix = b"/past/"
    async with client_of(etcd_server) as client:
        first = (await client.range(prefix)).revision + 1
        before = await write(client, prefix, 500)
        async with aclosing(client.watch(prefix, end_of_prefix(prefix), first)) as watching:
            writing = asyncio.create_task(write(client, prefix, 500))
            async with asyncio.timeout(20):
                found = await revisions_of(watching, 1000)
            after = await writing
    assert found == before + after

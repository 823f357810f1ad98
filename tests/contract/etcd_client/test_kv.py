"""Keys, transactions and refusals, against a real etcd."""

from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from persys_adapters.etcd.client import (
    AmbiguousWriteError,
    CompactedError,
    Compare,
    DeleteKey,
    DeleteResult,
    EtcdClient,
    EtcdConfig,
    EtcdError,
    FutureRevisionError,
    GetKey,
    InvalidRequestError,
    LeaseLostError,
    NoSpaceError,
    Operation,
    Put,
    PutResult,
    RangeResult,
    TooLargeError,
    UnavailableError,
    end_of_prefix,
)
from tests.contract.etcd_client.support import client_of
from tests.servers.etcd import EtcdCluster, run_single


def _compare(key: bytes, target: str, expected: Any) -> Compare:
    return Compare(key, **{target: expected})


async def _fill(client: EtcdClient) -> None:
    for number in range(100):
        await client.put(b"/full/%d" % number, b"x" * 100_000)


@pytest.mark.asyncio
async def test_a_key_is_read_as_it_stands(etcd_server: EtcdCluster) -> None:
    """A read gives value, revisions, version and lease, and the header's revision and cluster."""
    async with client_of(etcd_server) as client:
        lease = await client.lease_grant(60)
        first = await client.put(b"/stands/a", b"1")
        second = await client.put(b"/stands/a", b"2", lease=lease.id)
        found = await client.range(b"/stands/a")
    [kv] = found.kvs
    assert (kv.key, kv.value, kv.version, kv.lease) == (b"/stands/a", b"2", 2, lease.id)
    assert (kv.create_revision, kv.mod_revision) == (first.revision, second.revision)
    assert found.revision >= second.revision
    assert found.cluster_id == second.cluster_id != 0
    assert (found.more, found.count) == (False, 1)


@pytest.mark.asyncio
async def test_a_range_has_a_limit_and_a_past(etcd_server: EtcdCluster) -> None:
    """A limit leaves keys out and says so; an older revision is read as it was; keys can go
    without their values."""
    prefix = b"/range/"
    async with client_of(etcd_server) as client:
        for number in range(5):
            await client.put(prefix + b"%d" % number, b"x")
        last = await client.range(prefix)
        await client.delete(prefix, end_of_prefix(prefix))
        now = await client.range(prefix, end_of_prefix(prefix))
        past = await client.range(
            prefix, end_of_prefix(prefix), limit=2, revision=last.revision, keys_only=True
        )
        local = await client.range(prefix, end_of_prefix(prefix), serializable=True)
    assert now.kvs == local.kvs == ()
    assert [kv.key for kv in past.kvs] == [b"/range/0", b"/range/1"]
    assert [kv.value for kv in past.kvs] == [b"", b""]
    assert (past.more, past.count) == (True, 5)


@pytest.mark.asyncio
async def test_pages_are_of_one_revision(etcd_server: EtcdCluster) -> None:
    """What is written or deleted between two pages is not seen in them."""
    prefix = b"/pages/"
    async with client_of(etcd_server) as client:
        for number in range(7):
            await client.put(prefix + b"%d" % number, b"old")
        pages: list[RangeResult] = []
        async with aclosing(client.pages(prefix, end_of_prefix(prefix), page_size=3)) as listing:
            async for page in listing:
                pages.append(page)
                await client.put(prefix + b"6", b"new")
                await client.put(prefix + b"9", b"new")
                await client.delete(prefix + b"4")
        [empty] = [each async for each in client.pages(b"/none/", end_of_prefix(b"/none/"))]
    assert [len(page.kvs) for page in pages] == [3, 3, 1]
    assert {kv.value for page in pages for kv in page.kvs} == {b"old"}
    assert len({page.revision for page in pages}) == 1
    assert empty.kvs == ()
    assert empty.revision > pages[0].revision


@pytest.mark.asyncio
@pytest.mark.parametrize("target", ["mod_revision", "create_revision", "version", "value", "lease"])
async def test_every_comparison_holds_and_fails(etcd_server: EtcdCluster, target: str) -> None:
    """A transaction is done when the compared property is equal, and not when it is another."""
    key = b"/compare/" + target.encode()
    async with client_of(etcd_server) as client:
        lease = await client.lease_grant(60)
        await client.put(key, b"1", lease=lease.id)
        [kv] = (await client.range(key)).kvs
        right = getattr(kv, target)
        wrong = b"other" if target == "value" else right + 1
        refused = await client.txn([_compare(key, target, wrong)], [Put(key, b"2")])
        done = await client.txn([_compare(key, target, right)], [Put(key, b"3")])
        [after] = (await client.range(key)).kvs
    assert (refused.succeeded, done.succeeded, after.value) == (False, True, b"3")
    assert done.revision == after.mod_revision == refused.revision + 1


@pytest.mark.asyncio
async def test_a_key_is_created_once(etcd_server: EtcdCluster) -> None:
    """A comparison with revision 0 holds while the key is not there; the loser is told the key."""
    key = b"/create"
    absent = [Compare(key, mod_revision=0)]
    async with client_of(etcd_server) as client:
        won = await client.txn(absent, [Put(key, b"mine")], [GetKey(key)])
        lost = await client.txn(absent, [Put(key, b"other")], [GetKey(key)])
    assert won.responses == (PutResult(won.revision, won.cluster_id),)
    [found] = lost.responses
    assert isinstance(found, RangeResult)
    assert [kv.value for kv in found.kvs] == [b"mine"]
    assert not lost.succeeded


@pytest.mark.asyncio
async def test_one_transaction_reads_writes_and_deletes(etcd_server: EtcdCluster) -> None:
    """The responses stand in the order of the operations, ranges and counts among them."""
    prefix = b"/mixed/"
    end = end_of_prefix(prefix)
    async with client_of(etcd_server) as client:
        await client.put(prefix + b"a", b"1")
        await client.put(prefix + b"b", b"1")
        done = await client.txn(
            (), [GetKey(prefix, end), DeleteKey(prefix, prefix + b"c"), Put(prefix + b"d", b"2")]
        )
        after = await client.range(prefix, end)
    got, deleted, put = done.responses
    assert isinstance(got, RangeResult)
    assert [kv.key for kv in got.kvs] == [prefix + b"a", prefix + b"b"]
    assert deleted == DeleteResult(done.revision, done.cluster_id, 2)
    assert put == PutResult(done.revision, done.cluster_id)
    assert [kv.key for kv in after.kvs] == [prefix + b"d"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([Put(b"/no", b"x" * 2_000_000)], TooLargeError),
        ([Put(b"/no/%d" % number, b"") for number in range(129)], TooLargeError),
        ([Put(b"/no", b"1"), Put(b"/no", b"2")], InvalidRequestError),
        ([Put(b"", b"1")], InvalidRequestError),
        ([Put(b"/no", b"1", lease=77)], LeaseLostError),
    ],
)
async def test_refused_writes_were_not_done(
    etcd_server: EtcdCluster, operations: list[Operation], expected: type[EtcdError]
) -> None:
    """What etcd does not take is told by its class, and certainly not applied."""
    async with client_of(etcd_server) as client:
        before = await client.range(b"/no", b"/np")
        with pytest.raises(EtcdError) as caught:
            await client.txn((), operations)
        after = await client.range(b"/no", b"/np")
    assert type(caught.value) is expected
    assert not caught.value.maybe_applied
    assert after == before


@pytest.mark.asyncio
async def test_past_and_future_are_told_apart(etcd_alone: EtcdCluster) -> None:
    """A compacted revision and one that is not reached yet are different errors."""
    async with client_of(etcd_alone) as client:
        for number in range(10):
            await client.put(b"/a", b"%d" % number)
        last = await client.range(b"/a")
        await client.compact(last.revision - 1, physical=True)
        with pytest.raises(CompactedError):
            await client.range(b"/a", revision=last.revision - 5)
        with pytest.raises(CompactedError):
            await client.compact(last.revision - 5)
        with pytest.raises(FutureRevisionError):
            await client.range(b"/a", revision=last.revision + 5)


@pytest.mark.asyncio
async def test_a_dead_server_is_unavailable_and_the_write_unsent(etcd_alone: EtcdCluster) -> None:
    """With no one listening a write is certainly not done; after a restart calls work again."""
    [member] = etcd_alone.members
    async with client_of(etcd_alone, call_timeout=timedelta(seconds=1.5)) as client:
        await client.put(b"/a", b"1")
        member.kill()
        with pytest.raises(UnavailableError) as caught:
            await client.put(b"/a", b"2")
        member.restart()
        [kv] = (await client.range(b"/a")).kvs
    assert not isinstance(caught.value, AmbiguousWriteError)
    assert not caught.value.maybe_applied
    assert member.endpoint in str(caught.value)
    assert kv.value == b"1"


@pytest.mark.asyncio
async def test_a_full_store_still_deletes(tmp_path: Path) -> None:
    """Without space a put and a grant are refused as such, which may have been done; deletes and
    keepalives work, and after compaction, defragmentation and disarming everything does."""
    options = ("--quota-backend-bytes", str(2_000_000))
    with run_single(tmp_path, options=options) as server:
        async with EtcdClient(EtcdConfig(server.endpoints)) as client:
            lease = await client.lease_grant(60)
            with pytest.raises(NoSpaceError) as caught:
                await _fill(client)
            with pytest.raises(NoSpaceError):
                await client.lease_grant(60)
            [alarm] = await client.alarms()
            await client.keep_alive(lease.id)
            deleted = await client.delete(b"/full/", end_of_prefix(b"/full/"))
            await client.compact(deleted.revision, physical=True)
            await client.defragment(server.endpoints[0])
            await client.disarm(alarm)
            await client.put(b"/full/0", b"again")
            status = await client.status()
    assert caught.value.maybe_applied
    assert deleted.deleted > 5
    assert alarm.kind.name == "NOSPACE"
    assert status.db_size < 1_000_000

"""What other programs, older and newer ones, wrote into the store."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve

from persys_adapters.kv.cluster_store import MAX_COMMIT_BYTES, KvClusterStore
from persys_adapters.kv.contract import Txn
from persys_adapters.kv.dict_kv import DictKv
from persys_adapters.records.codec import UnreadableRecordError
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation, Assignment
from persys_core.ports.cluster_store import (
    Change,
    CommitTooLargeError,
    Delete,
    Guarantee,
    Key,
    Put,
)
from persys_core.testing.cluster_store_backend import (
    commit_of,
    committed,
    conflicted,
    expect,
    next_batches,
    put,
    read,
    watching,
)

KEY, PATH = Key.assignment("w1"), b"/assignments/w1"
FOREIGN = {"workloadId": "w1", "nodeId": "n1", "reason": "because", "rank": 7}
AT = datetime(2026, 1, 1, tzinfo=UTC)
GUARANTEES = Guarantee.CAS | Guarantee.WATCH | Guarantee.SHARED


async def write(kv: DictKv, path: bytes, value: bytes | dict[str, Any]) -> None:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    await kv.txn(Txn(puts=((path, raw),)))


def stored(kv: DictKv, path: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(kv.entries[path].value)
    return value


@pytest.mark.asyncio
@pytest.mark.parametrize("way", ["snapshot", "get", "conflict", "watch"])
async def test_unknown_fields_survive_a_rewrite(way: str) -> None:
    """A field that we do not know stays when the record is written anew, however it was read."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    await write(kv, PATH, FOREIGN)
    match way:
        case "snapshot":
            found = (await store.snapshot()).records[KEY]
        case "get":
            found = (await store.get([KEY]))[KEY] or pytest.fail("absent")
        case "conflict":
            lost = await conflicted(store, commit_of(expects=[expect(KEY, 0)]))
            found = lost.current[KEY] or pytest.fail("absent")
        case _:
            async with watching(store, 0) as watch:
                (batch,) = await next_batches(watch, 1)
            found = batch.changes[0].current or pytest.fail("removed")
    assert isinstance(found.value, Assignment)
    moved = evolve(found.value, node_id="n2")
    await committed(
        store, commit_of(Put(KEY, moved), expects=[expect(KEY, found.revision)], token="t")
    )
    assert stored(kv, PATH)["rank"] == 7
    assert stored(kv, PATH)["nodeId"] == "n2"
    again = await read(store, KEY)
    assert again is not None
    assert again.value == moved


@pytest.mark.asyncio
async def test_unknown_fields_die_with_the_record() -> None:
    """A record that is removed and made anew does not inherit the old one's unknown fields."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    await write(kv, PATH, FOREIGN)
    found = await read(store, KEY)
    assert found is not None
    await committed(store, commit_of(Delete(KEY), expects=[expect(KEY, found.revision)]))
    await put(store, KEY, found.value)
    assert "rank" not in stored(kv, PATH)


@pytest.mark.asyncio
async def test_unreadable_records_are_quarantined() -> None:
    """Damaged records are skipped, named and reported; the others are read (U01)."""
    kv = DictKv()
    reports: list[str] = []

    def report(path: str, error: UnreadableRecordError) -> None:
        reports.append(path)

    store = KvClusterStore(kv, GUARANTEES, report)
    await put(store, Key.allocation("n1"), Allocation("n1"))
    await write(kv, b"/assignments/bad", b"{not json")
    await write(kv, b"/nodes/\xff", b"[]")
    snapshot = await store.snapshot()
    assert set(snapshot.records) == {Key.allocation("n1")}
    assert snapshot.quarantined == ("/assignments/bad", "/nodes/\udcff")
    assert snapshot.unreadable == {Key.assignment("bad"), Key.node("\udcff")}
    assert reports == list(snapshot.quarantined)


@pytest.mark.asyncio
async def test_unreadable_records_are_not_overwritten() -> None:
    """A record that cannot be read is no free place, but it can be removed by name."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    await write(kv, PATH, b"{not json")
    assert await read(store, KEY) is None
    lost = await conflicted(store, commit_of(Delete(KEY), expects=[expect(KEY, 0)]))
    assert lost.current == {KEY: None}
    assert kv.entries[PATH].value == b"{not json"
    await committed(store, commit_of(Delete(KEY)))
    assert (await store.snapshot()).quarantined == ()


@pytest.mark.asyncio
async def test_a_record_that_breaks_is_not_removed() -> None:
    """A watch does not tell a record that became unreadable as removed (E04)."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    start = await put(store, Key.allocation("n1"), Allocation("n1"))
    await write(kv, b"/persys/allocations/n1", b"\x00")
    async with watching(store, start) as watch:
        (batch,) = await next_batches(watch, 1)
    assert (batch.revision, batch.changes) == (start + 1, ())


@pytest.mark.asyncio
async def test_foreign_writes_have_no_token() -> None:
    """A change by another program has no token; keys that are no records are left out."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    foreign = json.dumps(FOREIGN).encode()
    await kv.txn(Txn(puts=((PATH, foreign), (b"/nodes/n1/status", b"Ready"))))
    await kv.txn(Txn(deletes=(PATH,)))
    async with watching(store, 0) as watch:
        first, second = await next_batches(watch, 2)
    assert [change.key for change in first.changes] == [KEY]
    assert second.changes == (Change(KEY, None),)
    assert (first.token, second.token) == ("", "")


@pytest.mark.asyncio
async def test_own_commits_are_not_decoded() -> None:
    """The writer gets back from its watch the very record that it committed."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    value = Allocation("n1")
    await put(store, Key.allocation("n1"), value)
    async with watching(store, 0) as watch:
        (batch,) = await next_batches(watch, 1)
    current = batch.changes[0].current
    assert current is not None
    assert current.value is value


@pytest.mark.asyncio
async def test_an_effect_free_commit_claims_nothing() -> None:
    """A commit that changed nothing is not taken for the author of the last change."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    await write(kv, PATH, FOREIGN)
    await committed(store, commit_of(Delete(Key.marker()), token="ours"))
    async with watching(store, 0) as watch:
        (batch,) = await next_batches(watch, 1)
    assert batch.token == ""
    assert batch.changes[0].current is not None


@pytest.mark.asyncio
async def test_large_values_are_refused() -> None:
    """A commit above the limit in bytes is a CommitTooLargeError, and nothing is written."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    large = Assignment("w1", "", "n1", Resources(), "x" * MAX_COMMIT_BYTES, AT)
    with pytest.raises(CommitTooLargeError, match=str(MAX_COMMIT_BYTES)):
        await store.commit(commit_of(Put(KEY, large)))
    assert kv.entries == {}


@pytest.mark.asyncio
async def test_listings_come_in_pages() -> None:
    """A snapshot is whole however many pages it takes, at the revision of the first."""
    kv = DictKv(page_size=2)
    store = KvClusterStore(kv, GUARANTEES)
    for number in range(7):
        await put(store, Key.allocation(f"n{number}"), Allocation(f"n{number}"))
    assert len((await store.snapshot()).records) == 7

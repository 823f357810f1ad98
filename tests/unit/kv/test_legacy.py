"""Workloads in the reference's older layout are records like any other (U01, defect A9)."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve

from persys_adapters.kv.cluster_store import KvClusterStore
from persys_adapters.kv.contract import KvRead, Txn
from persys_adapters.kv.dict_kv import DictKv
from persys_core.model.spec import ContainerSpec
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import StatusRecord, Workload
from persys_core.ports.cluster_store import (
    Commit,
    CommitTooLargeError,
    Delete,
    Expectation,
    Guarantee,
    Key,
    Put,
    Versioned,
)
from persys_core.testing.cluster_store_backend import (
    commit_of,
    committed,
    conflicted,
    expect,
    next_batches,
    read,
    watching,
)

GUARANTEES = Guarantee.CAS | Guarantee.WATCH | Guarantee.SHARED
OLD, SPEC, STATUS = b"/workloads/w1", b"/workloads-spec/w1", b"/workloads-status/w1"
WORKLOAD_KEY, STATUS_KEY = Key.workload("w1"), Key.status("w1")
SPEC_FIELDS: dict[str, Any] = {
    "id": "w1",
    "name": "web",
    "type": "container",
    "revisionId": "a" * 24,
    "image": "nginx:1",
    "resources": {"cpu_usage": 0.5},
    "desiredState": "Running",
    "createdAt": "2026-06-01T10:00:00Z",
    "managedVolumes": [{"name": "data", "driver": "nfs", "sizeGb": 5}],
    "futureField": {"of": "a later release"},
}
STATUS_FIELDS: dict[str, Any] = {
    "id": "w1",
    "assignedNode": "n1",
    "nodeId": "n1",
    "status": "Running",
    "logs": "[2026-06-01 10:00:00] started\n",
    "metadata": {"last_action": "Assigned", "reapplyAttempts": 3},
    "retry": {"attempts": 1, "maxAttempts": 5, "nextRetryAt": "0001-01-01T00:00:00Z"},
    "statusInfo": {"actualState": "Running", "lastUpdated": "2026-06-01T10:05:00Z"},
    "usage": {"workloadId": "w1", "cpuPercent": 12.5},
}
LEGACY = {**SPEC_FIELDS, **STATUS_FIELDS}


async def put_raw(kv: DictKv, path: bytes, value: bytes | dict[str, Any]) -> int:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    await kv.txn(Txn(puts=((path, raw),)))
    return await kv.revision()


async def opened(legacy: bytes | dict[str, Any] = LEGACY) -> tuple[DictKv, KvClusterStore]:
    """A store with one old object in it, loaded once."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    await put_raw(kv, OLD, legacy)
    await store.snapshot()
    return kv, store


async def found(store: KvClusterStore, key: Key) -> Versioned[Any]:
    return await read(store, key) or pytest.fail(f"{key} is absent")


def image_of(record: object) -> str:
    assert isinstance(record, Workload)
    assert isinstance(record.spec.body, ContainerSpec)
    return record.spec.body.image


def stored(kv: DictKv, path: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(kv.entries[path].value)
    return value


@pytest.mark.asyncio
@pytest.mark.parametrize("way", ["snapshot", "get", "conflict", "watch"])
async def test_an_old_object_is_two_records(way: str) -> None:
    """Spec and status are read from it, however they are read, at the object's revisions."""
    kv, store = await opened()
    revision = await kv.revision()
    keys = (WORKLOAD_KEY, STATUS_KEY)
    match way:
        case "snapshot":
            records = dict((await store.snapshot()).records)
        case "get":
            records = {key: await found(store, key) for key in keys}
        case "conflict":
            lost = await conflicted(store, commit_of(expects=[expect(key, 0) for key in keys]))
            records = {key: each for key, each in lost.current.items() if each}
        case _:
            async with watching(store, 0) as watch:
                (batch,) = await next_batches(watch, 1)
            records = {change.key: change.current for change in batch.changes if change.current}
    assert records.keys() == set(keys)
    workload, status = records[WORKLOAD_KEY].value, records[STATUS_KEY].value
    assert isinstance(workload, Workload)
    assert isinstance(status, StatusRecord)
    assert isinstance(workload.spec.body, ContainerSpec)
    assert [volume.name for volume in workload.spec.managed_volumes] == ["data"]
    assert (status.status, status.observed.node_id) == (WorkloadStatus.RUNNING, "n1")
    assert {(each.revision, each.create_revision) for each in records.values()} == {
        (revision, revision)
    }


@pytest.mark.asyncio
@pytest.mark.parametrize("written", [WORKLOAD_KEY, STATUS_KEY])
async def test_the_first_write_moves_both_halves(written: Key) -> None:
    """The object is gone in the same transaction; what nobody knows is kept, each in its half."""
    kv, store = await opened()
    before = await found(store, written)
    changed = (
        evolve(before.value, desired_state=DesiredState.STOPPED)
        if written is WORKLOAD_KEY
        else evolve(before.value, last_action="Settled")
    )
    await committed(
        store, commit_of(Put(written, changed), expects=[expect(written, before.revision)])
    )
    assert kv.entries.keys() == {SPEC, STATUS}
    assert (await found(store, written)).value == changed
    spec, status = stored(kv, SPEC), stored(kv, STATUS)
    assert spec["futureField"] == LEGACY["futureField"]
    assert spec["managedVolumes"][0]["name"] == "data"
    assert (status["logs"], status["usage"]) == (LEGACY["logs"], LEGACY["usage"])
    assert status["metadata"]["reapplyAttempts"] == 3
    assert not spec.keys() & (STATUS_FIELDS.keys() - {"id"})
    assert not status.keys() & (SPEC_FIELDS.keys() - {"id"})
    records = (await store.snapshot()).records
    assert records.keys() == {WORKLOAD_KEY, STATUS_KEY}


@pytest.mark.asyncio
async def test_a_move_is_told_to_watchers() -> None:
    """Both records change, since both have new revisions; nothing is told as removed."""
    kv, store = await opened()
    before = await found(store, STATUS_KEY)
    changed = evolve(before.value, last_action="Settled")
    commit = commit_of(Put(STATUS_KEY, changed), expects=[expect(STATUS_KEY, before.revision)])
    done = await committed(store, commit)
    for follower in (store, KvClusterStore(kv, GUARANTEES)):
        async with watching(follower, before.revision) as watch:
            (batch,) = await next_batches(watch, 1)
        told = {change.key: change.current for change in batch.changes}
        assert told.keys() == {WORKLOAD_KEY, STATUS_KEY}
        assert {each.revision for each in told.values() if each} == {done}


@pytest.mark.asyncio
async def test_stale_expectations_lose() -> None:
    """An object that changed since it was read, or that exists at all, refuses the commit."""
    kv, store = await opened()
    before = await found(store, WORKLOAD_KEY)
    revision = await put_raw(kv, OLD, {**LEGACY, "image": "nginx:2"})
    raw = kv.entries[OLD].value
    for wanted in (before.revision, 0):
        commit = commit_of(Put(WORKLOAD_KEY, before.value), expects=[expect(WORKLOAD_KEY, wanted)])
        lost = await conflicted(store, commit)
        current = lost.current[WORKLOAD_KEY] or pytest.fail("absent")
        assert current.revision == revision
        assert image_of(current.value) == "nginx:2"
    assert kv.entries[OLD].value == raw


@pytest.mark.asyncio
async def test_an_unseen_object_is_in_the_way() -> None:
    """A store that never listed does not write beside an old object that it does not know."""
    kv = DictKv()
    await put_raw(kv, OLD, LEGACY)
    other = await found(KvClusterStore(kv, GUARANTEES), WORKLOAD_KEY)
    store = KvClusterStore(kv, GUARANTEES)
    commit = commit_of(Put(WORKLOAD_KEY, other.value), expects=[expect(WORKLOAD_KEY, 0)])
    lost = await conflicted(store, commit)
    assert lost.current[WORKLOAD_KEY] == other
    assert kv.entries.keys() == {OLD}


@pytest.mark.asyncio
async def test_a_fence_on_an_object_holds() -> None:
    """The creation revision of a record that stands in an old object is the object's."""
    kv, store = await opened()
    before = await found(store, WORKLOAD_KEY)
    await put_raw(kv, OLD, LEGACY)
    fence = Expectation(WORKLOAD_KEY, create_revision=before.create_revision)
    await committed(store, Commit((fence,), (Put(WORKLOAD_KEY, before.value),), "t"))
    assert kv.entries.keys() == {SPEC, STATUS}


@pytest.mark.asyncio
async def test_the_split_record_wins() -> None:
    """An id in both layouts is one entry: each half that has its own key is taken whole from it."""
    kv, store = await opened()
    await put_raw(kv, SPEC, {**SPEC_FIELDS, "image": "nginx:2", "managedVolumes": []})
    records = (await store.snapshot()).records
    assert records.keys() == {WORKLOAD_KEY, STATUS_KEY}
    workload = records[WORKLOAD_KEY].value
    assert isinstance(workload, Workload)
    assert image_of(workload) == "nginx:2"
    assert workload.spec.managed_volumes == ()
    assert records[WORKLOAD_KEY].revision == kv.entries[SPEC].mod_revision
    assert records[STATUS_KEY].revision == kv.entries[OLD].mod_revision
    assert await read(store, WORKLOAD_KEY) == records[WORKLOAD_KEY]


@pytest.mark.asyncio
async def test_a_write_beside_an_old_object_removes_it() -> None:
    """The first write to an id in both layouts leaves one, and loses neither half."""
    kv, store = await opened()
    revision = await put_raw(kv, SPEC, {**SPEC_FIELDS, "image": "nginx:2"})
    before = await found(store, WORKLOAD_KEY)
    assert before.revision == revision
    commit = commit_of(Put(WORKLOAD_KEY, before.value), expects=[expect(WORKLOAD_KEY, revision)])
    await committed(store, commit)
    assert kv.entries.keys() == {SPEC, STATUS}
    assert stored(kv, SPEC)["image"] == "nginx:2"
    assert stored(kv, STATUS)["logs"] == LEGACY["logs"]


@pytest.mark.asyncio
@pytest.mark.parametrize("both", [False, True])
async def test_a_delete_leaves_no_key(both: bool) -> None:
    """Both layouts go, and what the reference only writes; each record is told as gone once."""
    kv, store = await opened()
    paths = [b"/retries/w1", b"/reconciliation/w1", *([SPEC, STATUS] if both else [])]
    for path in paths:
        await put_raw(kv, path, LEGACY)
    records = (await store.snapshot()).records
    keys = (WORKLOAD_KEY, STATUS_KEY)
    expects = [expect(key, records[key].revision) for key in keys]
    done = await committed(store, commit_of(*map(Delete, keys), expects=expects))
    assert kv.entries == {}
    async with watching(store, done - 1) as watch:
        (batch,) = await next_batches(watch, 1)
    assert sorted(change.key.kind for change in batch.changes) == ["status", "workload"]
    assert [change.current for change in batch.changes] == [None, None]


@pytest.mark.asyncio
async def test_a_removed_node_leaves_no_shadow() -> None:
    """The reference's copy of a node's status goes with the node."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    await put_raw(kv, b"/nodes/n1", {"nodeId": "n1"})
    await put_raw(kv, b"/nodes/n1/status", b"Ready")
    await committed(store, commit_of(Delete(Key.node("n1")), expects=[expect(Key.node("n1"), 1)]))
    assert kv.entries == {}


@pytest.mark.asyncio
async def test_a_broken_object_is_left_alone() -> None:
    """It is told once, fills no place, is never overwritten, and can be removed by name."""
    kv, store = await opened(b"{not json")
    assert (await store.snapshot()).quarantined == ("/workloads/w1",)
    assert await read(store, WORKLOAD_KEY) is None
    whole = KvClusterStore(DictKv(), GUARANTEES)
    value = await put_value(whole)
    await conflicted(store, commit_of(Put(WORKLOAD_KEY, value), expects=[expect(WORKLOAD_KEY, 0)]))
    await committed(store, commit_of(Put(WORKLOAD_KEY, value), expects=[]))
    assert kv.entries[OLD].value == b"{not json"
    await committed(store, commit_of(Delete(WORKLOAD_KEY), expects=[]))
    assert kv.entries == {}


async def put_value(store: KvClusterStore) -> Workload:
    kv = DictKv()
    await put_raw(kv, OLD, LEGACY)
    record = (await found(KvClusterStore(kv, GUARANTEES), WORKLOAD_KEY)).value
    assert isinstance(record, Workload)
    return record


@pytest.mark.asyncio
async def test_a_broken_split_record_is_not_replaced_by_an_old_one() -> None:
    """A spec that cannot be read is quarantined, and the older one behind it is not used."""
    kv, store = await opened()
    await put_raw(kv, SPEC, b"\x00")
    snapshot = await store.snapshot()
    assert snapshot.quarantined == ("/workloads-spec/w1",)
    assert snapshot.records.keys() == {STATUS_KEY}
    assert await read(store, WORKLOAD_KEY) is None


@pytest.mark.asyncio
async def test_a_half_that_cannot_be_read_moves_untouched() -> None:
    """A kind of a later release keeps its spec byte for byte when its status is written."""
    kv, store = await opened({**LEGACY, "type": "wasm"})
    assert (await store.snapshot()).quarantined == ("/workloads/w1",)
    before = await found(store, STATUS_KEY)
    commit = commit_of(Put(STATUS_KEY, before.value), expects=[expect(STATUS_KEY, before.revision)])
    await committed(store, commit)
    assert stored(kv, SPEC) == {**SPEC_FIELDS, "type": "wasm"}
    assert (await store.snapshot()).quarantined == ("/workloads-spec/w1",)


@pytest.mark.asyncio
async def test_an_object_that_changes_is_told() -> None:
    """A change is told for what stands in it alone; its removal too, and only there."""
    kv, store = await opened()
    start = await put_raw(kv, SPEC, SPEC_FIELDS)
    await store.snapshot()
    await put_raw(kv, OLD, {**LEGACY, "status": "Failed"})
    await kv.txn(Txn(deletes=(OLD,)))
    async with watching(store, start) as watch:
        changed, removed = await next_batches(watch, 2)
    (change,) = changed.changes
    assert change.key == STATUS_KEY
    assert change.current is not None
    assert isinstance(change.current.value, StatusRecord)
    assert change.current.value.status is WorkloadStatus.FAILED
    assert [(each.key, each.current) for each in removed.changes] == [(STATUS_KEY, None)]


@pytest.mark.asyncio
async def test_old_layouts_count_as_operations() -> None:
    """What they add to a transaction counts towards its limit, and nothing is done above it."""
    kv = DictKv()
    store = KvClusterStore(kv, GUARANTEES)
    keys = [Key.workload(f"w{number}") for number in range(51)]
    with pytest.raises(CommitTooLargeError, match="102 comparisons"):
        await store.commit(commit_of(expects=[expect(key, 0) for key in keys]))
    with pytest.raises(CommitTooLargeError, match="104 writes"):
        await store.commit(commit_of(*map(Delete, keys[:26]), expects=[]))
    await store.commit(commit_of(*map(Delete, keys[:25]), expects=[]))


@pytest.mark.asyncio
async def test_an_object_that_is_left_behind_removes_nothing() -> None:
    """Once a record has its own key, the end of the old object is no end of the record."""
    kv, store = await opened()
    start = await kv.revision()
    await put_raw(kv, SPEC, SPEC_FIELDS)
    await put_raw(kv, STATUS, STATUS_FIELDS)
    await kv.txn(Txn(deletes=(OLD,)))
    async with watching(store, start) as watch:
        batches = await next_batches(watch, 3)
    assert batches[2].changes == ()


class RacingKv(DictKv):
    """Another program writes right after the next read."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[tuple[bytes, bytes]] = []

    async def get(self, keys: Iterable[bytes]) -> KvRead:
        read = await super().get(keys)
        writes, self.meanwhile = tuple(self.meanwhile), []
        if writes:
            await self.txn(Txn(puts=writes))
        return read


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [OLD, STATUS])
async def test_what_changes_during_a_move_is_not_lost(path: bytes) -> None:
    """A half that is written while the other one is moved makes the move lose, not the half."""
    kv = RacingKv()
    store = KvClusterStore(kv, GUARANTEES)
    await put_raw(kv, OLD, LEGACY)
    revision = await put_raw(kv, SPEC, SPEC_FIELDS)
    await store.snapshot()
    before = await found(store, WORKLOAD_KEY)
    newer = json.dumps({**LEGACY, "status": "Failed"}).encode()
    kv.meanwhile = [(path, newer)]
    commit = commit_of(Put(WORKLOAD_KEY, before.value), expects=[expect(WORKLOAD_KEY, revision)])
    lost = await conflicted(store, commit)
    assert lost.current[WORKLOAD_KEY] == before
    assert kv.entries[path].value == newer

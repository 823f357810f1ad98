"""Whatever layout a workload stands in, commits on it come out as they do in memory.

Random commits, right and stale ones, on a store that begins with old objects, split records, both,
or halves of them; the store in memory begins with the records that these stand for.
"""

import random
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from persys_adapters.kv.cluster_store import KvClusterStore
from persys_adapters.kv.contract import Kv, Txn
from persys_adapters.kv.dict_kv import DictKv
from persys_adapters.records.codec import decode
from persys_adapters.sqlite.file import SqliteFile
from persys_adapters.sqlite.kv import SqliteKv
from persys_adapters.sqlite.thread import SqlThread
from persys_core.model.ids import StoreRevision
from persys_core.model.workload import StatusRecord, Workload
from persys_core.ports.cluster_store import (
    Commit,
    Committed,
    Delete,
    Expectation,
    Guarantee,
    Key,
    Kind,
    Put,
    Record,
    Snapshot,
    Versioned,
    WatchBatch,
    Write,
)
from tests.corpus.reference_records import go_json, legacy, spec, status

pytestmark = pytest.mark.slow

IDS = ("w1", "w2", "w3")
KEYS = tuple(key for id_ in IDS for key in (Key.workload(id_), Key.status(id_)))
Seen = dict[Key, Versioned[Record] | None]


def seeded(rng: random.Random) -> Iterator[tuple[bytes, bytes]]:
    for id_ in IDS:
        if rng.random() < 0.7:
            yield f"/workloads/{id_}".encode(), go_json(legacy(id_))
        if rng.random() < 0.4:
            yield f"/workloads-spec/{id_}".encode(), go_json(spec(id_, image="new"))
        if rng.random() < 0.4:
            yield f"/workloads-status/{id_}".encode(), go_json(status(id_, word="Failed"))


def sample(key: Key) -> Record:
    raw = spec(key.id) if key.kind is Kind.WORKLOAD else status(key.id)
    return decode(key, go_json(raw)).record


def changed(record: Record, number: int) -> Record:
    match record:
        case Workload():
            return evolve(record, client_revision_id=f"c{number}")
        case StatusRecord():
            return evolve(record, last_action=f"a{number}")
        case _:
            raise AssertionError(record)


def drawn(rng: random.Random, seen: Seen, samples: dict[Key, Record], number: int) -> Commit:
    """A commit that expects what was seen, mostly; sometimes an older or another revision."""
    keys = rng.sample(KEYS, rng.randint(1, 3))
    expects = []
    for key in keys:
        known = seen[key]
        revision = known.revision if known else 0
        if rng.random() < 0.15:
            revision = rng.choice((0, max(0, revision - 1), revision + 1))
        expects.append(Expectation(key, revision))
    writes: list[Write] = []
    for key in keys:
        if rng.random() < 0.3:
            writes.append(Delete(key))
        elif rng.random() < 0.8:
            writes.append(Put(key, changed(samples[key], number)))
    return Commit(tuple(expects), tuple(writes), f"token-{number}")


def values(records: Seen) -> dict[Key, Record]:
    return {key: each.value for key, each in records.items() if each is not None}


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(60))
async def test_commits_come_out_as_in_memory(seed: int) -> None:
    """The same commits win and lose, the same records are left, and a watcher sees them too."""
    await commits_come_out(DictKv(), seed)


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(3))
async def test_commits_come_out_alike_on_disk(seed: int, tmp_path: Path) -> None:
    """The same on SQLite, which keeps the key-value contract in its own way."""
    thread = SqlThread(partial(SqliteFile, tmp_path / "state.db", 1000))
    await thread.start()
    async with aclosing(SqliteKv(thread)) as kv:
        await commits_come_out(kv, seed)


async def commits_come_out(kv: Kv, seed: int) -> None:
    rng = random.Random(seed)
    if puts := tuple(seeded(rng)):
        await kv.txn(Txn(puts=puts))
    store = KvClusterStore(kv, Guarantee.CAS | Guarantee.WATCH)
    start = await store.snapshot()
    follower = KvClusterStore(kv, Guarantee.CAS | Guarantee.WATCH)
    await follower.snapshot()
    samples = {key: sample(key) for key in KEYS}
    model: Seen = {key: start.records.get(key) for key in KEYS}
    for number in range(25):
        commit = drawn(rng, model, samples, number)
        result = await store.commit(commit)
        due = all(
            wanted.revision == (each.revision if (each := model[wanted.key]) else 0)
            for wanted in commit.expects
        )
        assert isinstance(result, Committed) is due, commit
        if due:
            for write in commit.writes:
                known = Versioned(write.value, 0, 0) if isinstance(write, Put) else None
                model[write.key] = known
        current = dict(await store.get(KEYS))
        assert values(current) == values(model)
        model = current
    again = await store.snapshot()
    assert dict(again.records) == {key: each for key, each in model.items() if each}
    assert await followed(follower, start, await kv.revision()) == values(model)


async def followed(
    follower: KvClusterStore, start: Snapshot, end: StoreRevision
) -> dict[Key, Record]:
    """What another replica knows that loaded the start and then only watched."""
    known: Seen = {**start.records}
    if end == start.revision:
        return values(known)
    async for event in follower.watch(start.revision):
        assert isinstance(event, WatchBatch)
        for change in event.changes:
            known[change.key] = change.current
        if event.revision == end:
            break
    return values(known)

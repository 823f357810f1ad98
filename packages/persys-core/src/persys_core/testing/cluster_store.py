"""Contract of ClusterStore: reading, committing, lasting and sharing.

Subclass ``ClusterStoreContract`` in a test module and give it a ``backend`` fixture that returns
a ``ClusterStoreBackend`` (docs/adapters.md). A rule is skipped only where the implementation does
not declare the guarantee that it needs.
"""

from __future__ import annotations

import asyncio

import pytest

from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation
from persys_core.ports.cluster_store import (
    MAX_COMMIT_OPERATIONS,
    ClusterStore,
    Commit,
    Committed,
    CommitTooLargeError,
    Delete,
    Expectation,
    Guarantee,
    Key,
    Put,
)
from persys_core.testing.cluster_store_backend import (
    ClusterStoreBackend,
    commit_of,
    committed,
    conflicted,
    expect,
    opened,
    put,
    read,
    remove,
    require,
)
from persys_core.testing.cluster_store_watch import WatchRules

__all__ = ["ClusterStoreContract"]

WRITERS = 5
INCREMENTS = 10


def _allocation(node_id: str, count: int = 0) -> tuple[Key, Allocation]:
    charged = Resources.of(cpu_millicores=100 * count, memory_mb=64 * count)
    return Key.allocation(node_id), Allocation(node_id, charged, count)


KEY, FIRST = _allocation("n1", 1)
_, SECOND = _allocation("n1", 2)
OTHER_KEY, OTHER = _allocation("n2", 1)


class CommitRules:
    """All or nothing, compare-and-swap, one revision per commit."""

    async def test_an_empty_store_has_no_records(self, backend: ClusterStoreBackend) -> None:
        """A new store answers with nothing, and a key that does not exist reads as None."""
        async with opened(backend) as store:
            assert (await store.snapshot()).records == {}
            assert await store.get([KEY, Key.marker()]) == {KEY: None, Key.marker(): None}

    async def test_what_was_put_is_read_back(self, backend: ClusterStoreBackend) -> None:
        """A committed record is read with its value and the commit's revision."""
        async with opened(backend) as store:
            revision = await put(store, KEY, FIRST)
            found = await read(store, KEY)
            assert found is not None
            assert found.value == FIRST
            assert (found.revision, found.create_revision) == (revision, revision)
            assert (await store.snapshot()).records == {KEY: found}

    async def test_revision_grows_by_one_per_commit(self, backend: ClusterStoreBackend) -> None:
        """Several writes of one commit share one revision, the next commit has the next."""
        async with opened(backend) as store:
            before = await store.probe()
            first = await committed(store, commit_of(Put(KEY, FIRST), Put(OTHER_KEY, OTHER)))
            second = await put(store, KEY, SECOND)
            assert (first, second) == (before + 1, before + 2)
            assert await store.probe() == second
            other = await read(store, OTHER_KEY)
            assert other is not None
            assert other.revision == first

    async def test_without_effect_no_revision(self, backend: ClusterStoreBackend) -> None:
        """An empty commit, and one that removes what is absent, moves no revision."""
        async with opened(backend) as store:
            before = await put(store, KEY, FIRST)
            assert await store.commit(commit_of()) == Committed(before)
            assert await store.commit(commit_of(Delete(OTHER_KEY))) == Committed(before)
            assert await store.probe() == before

    async def test_without_effect_expectations_count(self, backend: ClusterStoreBackend) -> None:
        """An empty commit with an expectation that does not hold is a conflict."""
        async with opened(backend) as store:
            revision = await put(store, KEY, FIRST)
            await conflicted(store, commit_of(expects=[expect(KEY, revision + 7)]))
            await committed(store, commit_of(expects=[expect(KEY, revision)]))

    async def test_a_put_always_counts(self, backend: ClusterStoreBackend) -> None:
        """Writing an equal value is a change: the record carries the new revision."""
        async with opened(backend) as store:
            await put(store, KEY, FIRST)
            again = await put(store, KEY, FIRST)
            found = await read(store, KEY)
            assert found is not None
            assert found.revision == again

    async def test_expected_revision_is_compared(self, backend: ClusterStoreBackend) -> None:
        """A writer that read an older revision loses, and nothing is written."""
        async with opened(backend) as store:
            old = await put(store, KEY, FIRST)
            new = await put(store, KEY, SECOND)
            stale = commit_of(Put(KEY, FIRST), expects=[expect(KEY, old)])
            conflict = await conflicted(store, stale)
            assert conflict.revision == new
            found = await read(store, KEY)
            assert found is not None
            assert found.value == SECOND

    async def test_zero_means_absent(self, backend: ClusterStoreBackend) -> None:
        """Revision 0 is expected of what must not exist, and of nothing else."""
        async with opened(backend) as store:
            create = commit_of(Put(KEY, FIRST), expects=[expect(KEY, 0)])
            await committed(store, create)
            await conflicted(store, commit_of(Put(KEY, SECOND), expects=[expect(KEY, 0)]))
            absent = Expectation(OTHER_KEY, create_revision=0)
            await committed(store, commit_of(Put(OTHER_KEY, OTHER), expects=[absent]))
            await conflicted(store, commit_of(Delete(OTHER_KEY), expects=[absent]))

    async def test_a_wanted_key_must_exist(self, backend: ClusterStoreBackend) -> None:
        """Expecting a revision of what was removed is a conflict that shows None."""
        async with opened(backend) as store:
            revision = await put(store, KEY, FIRST)
            await remove(store, KEY)
            late = commit_of(Put(KEY, SECOND), expects=[expect(KEY, revision)])
            assert (await conflicted(store, late)).current == {KEY: None}
            assert await read(store, KEY) is None

    async def test_no_partial_writes(self, backend: ClusterStoreBackend) -> None:
        """One expectation that does not hold stops every write of the commit."""
        async with opened(backend) as store:
            await put(store, KEY, FIRST)
            before = await store.snapshot()
            lost = commit_of(
                Put(OTHER_KEY, OTHER),
                Delete(KEY),
                expects=[expect(OTHER_KEY, 0), expect(KEY, before.revision + 1)],
            )
            await conflicted(store, lost)
            assert await store.snapshot() == before

    async def test_conflict_shows_every_key(self, backend: ClusterStoreBackend) -> None:
        """A loser gets all expected keys as they stand, those that held and absent ones too."""
        async with opened(backend) as store:
            await put(store, KEY, FIRST)
            await put(store, OTHER_KEY, OTHER)
            expects = [expect(KEY, 0), expect(Key.marker(), 0), expect(OTHER_KEY, 999_999)]
            conflict = await conflicted(store, commit_of(Put(KEY, SECOND), expects=expects))
            assert conflict.current == await store.get([KEY, Key.marker(), OTHER_KEY])
            assert conflict.current[Key.marker()] is None

    async def test_creation_survives_updates(self, backend: ClusterStoreBackend) -> None:
        """An update keeps the creation revision; a removal and a new put make another one."""
        async with opened(backend) as store:
            created = await put(store, KEY, FIRST)
            await put(store, KEY, SECOND)
            updated = await read(store, KEY)
            assert updated is not None
            assert updated.create_revision == created
            await remove(store, KEY)
            reborn = await put(store, KEY, FIRST)
            found = await read(store, KEY)
            assert found is not None
            assert (found.create_revision, found.revision) == (reborn, reborn)

    async def test_creation_revision_is_a_fence(self, backend: ClusterStoreBackend) -> None:
        """A fence holds over updates of its key, and fails for good once the key was made anew."""
        async with opened(backend) as store:
            fence = Expectation(KEY, create_revision=await put(store, KEY, FIRST))
            await put(store, KEY, SECOND)
            await committed(store, commit_of(Put(OTHER_KEY, OTHER), expects=[fence]))
            await remove(store, KEY)
            await conflicted(store, commit_of(Delete(OTHER_KEY), expects=[fence]))
            await put(store, KEY, FIRST)
            await conflicted(store, commit_of(Delete(OTHER_KEY), expects=[fence]))
            assert await read(store, OTHER_KEY) is not None

    async def test_largest_commit_is_done(self, backend: ClusterStoreBackend) -> None:
        """A commit of as many writes and expectations as are allowed is one revision."""
        async with opened(backend) as store:
            pairs = [_allocation(f"n{number}", 1) for number in range(MAX_COMMIT_OPERATIONS)]
            writes = [Put(key, value) for key, value in pairs]
            expects = [expect(key, 0) for key, _ in pairs]
            revision = await committed(store, commit_of(*writes, expects=expects))
            snapshot = await store.snapshot()
            assert {found.revision for found in snapshot.records.values()} == {revision}
            assert len(snapshot.records) == MAX_COMMIT_OPERATIONS

    async def test_too_large_is_refused(self, backend: ClusterStoreBackend) -> None:
        """One write or one expectation too many: CommitTooLargeError, and nothing is written."""
        async with opened(backend) as store:
            pairs = [_allocation(f"n{number}", 1) for number in range(MAX_COMMIT_OPERATIONS + 1)]
            with pytest.raises(CommitTooLargeError, match="100"):
                await store.commit(commit_of(*(Put(key, value) for key, value in pairs)))
            expects = [expect(key, 0) for key, _ in pairs]
            with pytest.raises(CommitTooLargeError, match="100"):
                await store.commit(commit_of(Put(KEY, FIRST), expects=expects))
            assert (await store.snapshot()).records == {}

    async def test_mistakes_are_refused(self, backend: ClusterStoreBackend) -> None:
        """A key written twice, a double or empty expectation, a wrong record: ValueError."""
        async with opened(backend) as store:
            mistakes = [
                commit_of(Put(KEY, FIRST), Put(KEY, SECOND)),
                commit_of(Put(KEY, FIRST), Delete(KEY)),
                commit_of(Put(KEY, FIRST), expects=[Expectation(KEY)]),
                commit_of(Put(KEY, FIRST), expects=[Expectation(KEY, 0, 0)]),
                commit_of(Put(Key.node("n1"), FIRST)),
            ]
            for mistake in mistakes:
                with pytest.raises(ValueError, match="n1"):
                    await store.commit(mistake)
            assert (await store.snapshot()).records == {}

    async def test_no_increment_is_lost(self, backend: ClusterStoreBackend) -> None:
        """Writers that each read, add one and compare never lose an update."""
        async with opened(backend) as store:
            await put(store, *_allocation("n1", 0))
            await asyncio.gather(*(_increment(store) for _ in range(WRITERS)))
            found = await read(store, KEY)
            assert found is not None
            assert found.value == _allocation("n1", WRITERS * INCREMENTS)[1]

    async def test_snapshots_are_at_one_revision(self, backend: ClusterStoreBackend) -> None:
        """While two records are moved together, every snapshot and read shows them equal."""
        async with opened(backend) as store:
            await committed(store, _pair(0))
            writing = asyncio.create_task(_move_pairs(store, 30))
            while not writing.done():
                snapshot = await store.snapshot()
                read_through = await store.get([KEY, OTHER_KEY])
                for records in (snapshot.records, read_through):
                    first, second = records[KEY], records[OTHER_KEY]
                    assert first is not None
                    assert second is not None
                    assert first.revision == second.revision <= await store.probe()
                assert snapshot.records[KEY].revision <= snapshot.revision
                await asyncio.sleep(0)
            await writing


class LastingRules:
    """What DURABLE and SHARED add."""

    async def test_a_reopened_store_has_everything(self, backend: ClusterStoreBackend) -> None:
        """DURABLE: closing and opening keeps every record and the revision."""
        async with opened(backend) as store:
            require(store, Guarantee.DURABLE)
            await put(store, KEY, FIRST)
            await put(store, OTHER_KEY, OTHER)
            await put(store, KEY, SECOND)
            await remove(store, OTHER_KEY)
            before = await store.snapshot()
        async with opened(backend) as store:
            assert await store.snapshot() == before
            assert await put(store, OTHER_KEY, OTHER) == before.revision + 1

    async def test_replicas_see_one_store(self, backend: ClusterStoreBackend) -> None:
        """SHARED: what one replica commits the other reads, and must expect."""
        async with opened(backend) as one:
            require(one, Guarantee.SHARED)
            async with opened(backend) as two:
                revision = await put(one, KEY, FIRST)
                assert await read(two, KEY) == await read(one, KEY)
                await conflicted(two, commit_of(Put(KEY, SECOND), expects=[expect(KEY, 0)]))
                await committed(two, commit_of(Delete(KEY), expects=[expect(KEY, revision)]))
                assert await read(one, KEY) is None

    async def test_replicas_lose_no_increment(self, backend: ClusterStoreBackend) -> None:
        """SHARED: writers on two replicas never lose an update (P02)."""
        async with opened(backend) as one:
            require(one, Guarantee.SHARED)
            async with opened(backend) as two:
                await put(one, *_allocation("n1", 0))
                await asyncio.gather(*(_increment(store) for store in (one, two, one, two)))
                found = await read(one, KEY)
                assert found is not None
                assert found.value == _allocation("n1", 4 * INCREMENTS)[1]


@pytest.mark.asyncio
class ClusterStoreContract(CommitRules, WatchRules, LastingRules):
    """Every rule of the port; give it a ``backend`` fixture."""


async def _increment(store: ClusterStore) -> None:
    """Add one ``INCREMENTS`` times, reading again after each lost race."""
    done = 0
    while done < INCREMENTS:
        found = await read(store, KEY)
        assert found is not None
        assert isinstance(found.value, Allocation)
        await asyncio.sleep(0)
        _, more = _allocation("n1", found.value.workload_count + 1)
        commit = commit_of(Put(KEY, more), expects=[expect(KEY, found.revision)])
        done += isinstance(await store.commit(commit), Committed)


def _pair(count: int) -> Commit:
    return commit_of(Put(*_allocation("n1", count)), Put(*_allocation("n2", count)))


async def _move_pairs(store: ClusterStore, times: int) -> None:
    for count in range(1, times + 1):
        await committed(store, _pair(count))
        await asyncio.sleep(0)

"""Contract of ClusterStore: watching. Part of ``testing.cluster_store.ClusterStoreContract``."""

from __future__ import annotations

import asyncio

from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation
from persys_core.ports.cluster_store import (
    Change,
    ClusterStore,
    Delete,
    Guarantee,
    Key,
    Put,
    Resync,
    Versioned,
    WatchBatch,
)
from persys_core.testing.cluster_store_backend import (
    ClusterStoreBackend,
    commit_of,
    committed,
    conflicted,
    expect,
    next_batches,
    next_event,
    opened,
    put,
    remove,
    require,
    watching,
)

__all__ = ["WatchRules"]

KEY = Key.allocation("n1")
OTHER_KEY = Key.allocation("n2")


def _value(count: int, node_id: str = "n1") -> Allocation:
    return Allocation(node_id, Resources.of(cpu_millicores=count), count)


async def _write_many(store: ClusterStore, times: int) -> list[int]:
    return [await put(store, KEY, _value(count)) for count in range(1, times + 1)]


class WatchRules:
    """Each change once, in order, a commit's changes together; a lost past is a Resync."""

    async def test_changes_come_once_in_order(self, backend: ClusterStoreBackend) -> None:
        """A watch gives each later commit exactly once, in the order of revisions."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            start = await put(store, KEY, _value(0))
            async with watching(store, start) as watch:
                revisions = await _write_many(store, 20)
                batches = await next_batches(watch, 20)
                assert [batch.revision for batch in batches] == revisions
                marker = await put(store, OTHER_KEY, _value(0, "n2"))
                assert [batch.revision for batch in await next_batches(watch, 1)] == [marker]

    async def test_live_changes_arrive(self, backend: ClusterStoreBackend) -> None:
        """A watch that waits is woken by the next commit."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            start = await store.probe()
            async with watching(store, start) as watch:
                waiting = asyncio.create_task(next_event(watch))
                await asyncio.sleep(0)
                revision = await put(store, KEY, _value(1))
                event = await waiting
                assert isinstance(event, WatchBatch)
                assert event.revision == revision

    async def test_a_commit_arrives_as_one(self, backend: ClusterStoreBackend) -> None:
        """All changes of a commit come in one batch, with its token and their new revisions."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            created = await put(store, KEY, _value(1))
            writes = (Delete(KEY), Put(OTHER_KEY, _value(2, "n2")))
            async with watching(store, created) as watch:
                revision = await committed(store, commit_of(*writes, token="of-this-commit"))
                (batch,) = await next_batches(watch, 1)
            born = Versioned(_value(2, "n2"), revision, revision)
            assert batch.token == "of-this-commit"
            assert {change.key: change for change in batch.changes} == {
                KEY: Change(KEY, None),
                OTHER_KEY: Change(OTHER_KEY, born),
            }

    async def test_a_removal_carries_the_token(self, backend: ClusterStoreBackend) -> None:
        """The writer of a commit that only removes recognises it by its token."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            start = await put(store, KEY, _value(1))
            await committed(store, commit_of(Delete(KEY), token="the-removal"))
            async with watching(store, start) as watch:
                (batch,) = await next_batches(watch, 1)
            assert batch.changes == (Change(KEY, None),)
            assert batch.token == "the-removal"

    async def test_lost_races_are_not_seen(self, backend: ClusterStoreBackend) -> None:
        """Neither a conflict nor a commit without effect makes an event."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            start = await put(store, KEY, _value(1))
            await conflicted(store, commit_of(Put(KEY, _value(2)), expects=[expect(KEY, 0)]))
            await committed(store, commit_of(Delete(OTHER_KEY)))
            revision = await put(store, KEY, _value(3))
            async with watching(store, start) as watch:
                (batch,) = await next_batches(watch, 1)
            assert batch.revision == revision

    async def test_creation_is_told(self, backend: ClusterStoreBackend) -> None:
        """A change carries the creation revision of its record, not only the change's own."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            start = await store.probe()
            created = await put(store, KEY, _value(1))
            updated = await put(store, KEY, _value(2))
            async with watching(store, start) as watch:
                first, second = await next_batches(watch, 2)
            assert first.changes[0].current == Versioned(_value(1), created, created)
            assert second.changes[0].current == Versioned(_value(2), updated, created)

    async def test_a_watch_starts_in_the_past(self, backend: ClusterStoreBackend) -> None:
        """History after the given revision comes first, then what happens now."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            revisions = await _write_many(store, 5)
            async with watching(store, revisions[1]) as watch:
                later = await remove(store, KEY)
                batches = await next_batches(watch, 4)
            assert [batch.revision for batch in batches] == [*revisions[2:], later]

    async def test_watchers_are_independent(self, backend: ClusterStoreBackend) -> None:
        """Two watchers at different places each get everything after their own revision."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            revisions = await _write_many(store, 4)
            async with (
                watching(store, revisions[0]) as early,
                watching(store, revisions[2]) as late,
            ):
                assert [batch.revision for batch in await next_batches(late, 1)] == revisions[3:]
                assert [batch.revision for batch in await next_batches(early, 3)] == revisions[1:]

    async def test_closing_ends_one_watch(self, backend: ClusterStoreBackend) -> None:
        """A watcher that is closed, also while it waits, disturbs neither the other nor writers."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            start = await store.probe()
            async with watching(store, start) as staying:
                async with watching(store, start) as leaving:
                    waiting = asyncio.create_task(next_event(leaving))
                    await asyncio.sleep(0)
                    waiting.cancel()
                    await asyncio.wait([waiting])
                revision = await put(store, KEY, _value(1))
                assert [batch.revision for batch in await next_batches(staying, 1)] == [revision]

    async def test_a_lost_past_is_a_resync(self, backend: ClusterStoreBackend) -> None:
        """Asking for forgotten changes gives the whole present, then goes on from there (E01)."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            revisions = await _write_many(store, 3)
            await remove(store, KEY)
            await put(store, OTHER_KEY, _value(1, "n2"))
            await backend.forget_history(store)
            async with watching(store, revisions[0]) as watch:
                event = await next_event(watch)
                assert isinstance(event, Resync)
                assert event.snapshot == await store.snapshot()
                assert KEY not in event.snapshot.records
                later = await put(store, KEY, _value(9))
                assert [batch.revision for batch in await next_batches(watch, 1)] == [later]

    async def test_the_present_is_never_lost(self, backend: ClusterStoreBackend) -> None:
        """A watch from the present revision needs no history."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            await _write_many(store, 3)
            await backend.forget_history(store)
            present = await store.probe()
            async with watching(store, present) as watch:
                later = await put(store, KEY, _value(9))
                assert [batch.revision for batch in await next_batches(watch, 1)] == [later]

    async def test_a_revision_never_reached(self, backend: ClusterStoreBackend) -> None:
        """A watcher from beyond the store's revision (a rewound store) gets a Resync (E03)."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            revision = await put(store, KEY, _value(1))
            async with watching(store, revision + 1000) as watch:
                event = await next_event(watch)
                assert isinstance(event, Resync)
                assert event.snapshot.revision == revision

    async def test_snapshot_and_watch_have_no_gap(self, backend: ClusterStoreBackend) -> None:
        """Snapshot plus the watch from its revision is the store, with writers all the time."""
        async with opened(backend) as store:
            require(store, Guarantee.WATCH)
            writing = asyncio.create_task(_write_many(store, 40))
            await asyncio.sleep(0)
            snapshot = await store.snapshot()
            cache = dict(snapshot.records)
            async with watching(store, snapshot.revision) as watch:
                last = (await writing)[-1]
                seen = snapshot.revision
                while seen < last:
                    (batch,) = await next_batches(watch, 1)
                    assert batch.revision == seen + 1
                    seen = batch.revision
                    for change in batch.changes:
                        if change.current is None:
                            cache.pop(change.key)
                        else:
                            cache[change.key] = change.current
            assert cache == (await store.snapshot()).records

    async def test_replicas_recognise_commits(self, backend: ClusterStoreBackend) -> None:
        """SHARED: another replica's watch shows the writer's token."""
        async with opened(backend) as one:
            require(one, Guarantee.SHARED)
            async with opened(backend) as two:
                start = await two.probe()
                async with watching(two, start) as watch:
                    await committed(one, commit_of(Put(KEY, _value(1)), token="from-one"))
                    (batch,) = await next_batches(watch, 1)
            assert batch.token == "from-one"

"""What the in-memory backend offers beyond the port: hooks, and a restored backup."""

import pytest

from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.model.ids import StoreRevision
from persys_core.model.workload import Allocation
from persys_core.ports.cluster_store import Commit, Delete, Key, Put, Resync, WatchBatch
from persys_core.testing.cluster_store_backend import (
    commit_of,
    committed,
    conflicted,
    expect,
    next_event,
    put,
    watching,
)

KEY, VALUE = Key.allocation("n1"), Allocation("n1")


@pytest.mark.asyncio
async def test_commits_are_told() -> None:
    """The hook sees each commit that changed something, after it was done, and no other."""
    store = MemoryClusterStore()
    told: list[tuple[Commit, StoreRevision]] = []
    store.backend.on_commit(lambda commit, revision: told.append((commit, revision)))
    first = commit_of(Put(KEY, VALUE))
    revision = await committed(store, first)
    await conflicted(store, commit_of(Delete(KEY), expects=[expect(KEY, 0)]))
    await committed(store, commit_of(Delete(Key.marker())))
    assert told == [(first, revision)]


@pytest.mark.asyncio
async def test_what_a_hook_raises_reaches_the_writer() -> None:
    """An invariant that fails in a hook is not swallowed."""
    store = MemoryClusterStore()

    def broken(commit: Commit, revision: StoreRevision) -> None:
        raise AssertionError(f"broken at {revision}")

    store.backend.on_commit(broken)
    with pytest.raises(AssertionError, match="broken at 1"):
        await store.commit(commit_of(Put(KEY, VALUE)))


@pytest.mark.asyncio
async def test_a_restored_backup_is_a_resync() -> None:
    """After the content was replaced, even at the same revision, watchers get all of it (E03)."""
    store = MemoryClusterStore()
    await put(store, KEY, VALUE)
    backup = await store.snapshot()
    later = await put(store, Key.allocation("n2"), Allocation("n2"))
    async with watching(store, later) as watch:
        store.backend.restore(backup)
        event = await next_event(watch)
        assert isinstance(event, Resync)
        assert event.snapshot == backup
        again = await put(store, Key.allocation("n3"), Allocation("n3"))
        assert again == later
        event = await next_event(watch)
        assert isinstance(event, WatchBatch)
        assert event.revision == again


@pytest.mark.asyncio
async def test_history_is_bounded() -> None:
    """Older changes than the history make a Resync; the newest ones are still there."""
    store = MemoryClusterStore(MemoryClusterBackend(history=3))
    for _ in range(6):
        await put(store, KEY, VALUE)
    async with watching(store, 2) as watch:
        assert isinstance(await next_event(watch), Resync)
    async with watching(store, 3) as watch:
        assert isinstance(await next_event(watch), WatchBatch)


@pytest.mark.asyncio
async def test_a_slow_watcher_gets_a_resync() -> None:
    """A watcher that falls behind the history is given the present instead."""
    store = MemoryClusterStore(MemoryClusterBackend(history=3))
    await put(store, KEY, VALUE)
    async with watching(store, 0) as watch:
        assert isinstance(await next_event(watch), WatchBatch)
        for _ in range(5):
            await put(store, KEY, VALUE)
        event = await next_event(watch)
        assert isinstance(event, Resync)
        assert event.snapshot.revision == 6

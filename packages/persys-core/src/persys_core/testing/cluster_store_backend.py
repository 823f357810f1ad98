"""What a contract suite asks of whoever proves a ClusterStore, and the helpers of the rules.

The suite itself stands in ``testing.cluster_store``; docs/adapters.md shows how it is used.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from persys_core.model.ids import StoreRevision
from persys_core.ports.cluster_store import (
    ClusterStore,
    Commit,
    CommitResult,
    Committed,
    Conflict,
    Delete,
    Expectation,
    Guarantee,
    Key,
    Put,
    Record,
    Versioned,
    WatchBatch,
    WatchEvent,
    Write,
)

__all__ = [
    "ClusterStoreBackend",
    "commit_of",
    "committed",
    "conflicted",
    "expect",
    "next_batches",
    "next_event",
    "opened",
    "put",
    "read",
    "remove",
    "require",
    "watching",
]

PATIENCE_SECONDS = 30.0
"""How long a rule waits for a watch before it fails; real time, only used up by a failure."""

_tokens = count(1)


class ClusterStoreBackend(ABC):
    """One database for one test, empty at first. Subclass it to prove an implementation."""

    @abstractmethod
    async def open(self) -> ClusterStore:
        """A store on the database; a further one where SHARED is declared, each time."""

    async def close(self, store: ClusterStore) -> None:
        """Close what ``open`` gave; its content stays where DURABLE is declared."""
        aclose = getattr(store, "aclose", None)
        if aclose is not None:
            await aclose()

    @abstractmethod
    async def forget_history(self, store: ClusterStore) -> None:
        """Make the past unavailable to watchers: compact everything before the present."""


@asynccontextmanager
async def opened(backend: ClusterStoreBackend) -> AsyncIterator[ClusterStore]:
    """A store that is closed at the end of the block."""
    store = await backend.open()
    try:
        yield store
    finally:
        await backend.close(store)


@asynccontextmanager
async def watching(
    store: ClusterStore, after: StoreRevision
) -> AsyncIterator[AsyncIterator[WatchEvent]]:
    """A watch that is closed at the end of the block."""
    watch = store.watch(after)
    try:
        yield watch
    finally:
        aclose = getattr(watch, "aclose", None)
        assert aclose is not None, "a watch is closed by its aclose(): make it an async generator"
        await aclose()


def require(store: ClusterStore, guarantee: Guarantee) -> None:
    """Skip the rule where the implementation does not declare ``guarantee``."""
    if guarantee not in store.guarantees:
        pytest.skip(f"{type(store).__name__} does not declare {guarantee.name}")


def expect(key: Key, revision: StoreRevision) -> Expectation:
    """The key's last change must be ``revision``; 0: it must not exist."""
    return Expectation(key, revision=revision)


def commit_of(
    *writes: Write, expects: Iterable[Expectation] = (), token: str | None = None
) -> Commit:
    """A commit with a token of its own, where none is given."""
    return Commit(tuple(expects), writes, f"token-{next(_tokens)}" if token is None else token)


async def committed(store: ClusterStore, commit: Commit) -> StoreRevision:
    """Do ``commit``, which must succeed; its revision."""
    result = await store.commit(commit)
    assert isinstance(result, Committed), result
    return result.revision


async def conflicted(store: ClusterStore, commit: Commit) -> Conflict:
    """Try ``commit``, which must lose; the conflict."""
    result: CommitResult = await store.commit(commit)
    assert isinstance(result, Conflict), result
    return result


async def read(store: ClusterStore, key: Key) -> Versioned[Record] | None:
    """One record as it stands now."""
    return (await store.get([key]))[key]


async def put(store: ClusterStore, key: Key, value: Record) -> StoreRevision:
    """Write ``value`` over whatever stands at ``key``; the revision."""
    current = await read(store, key)
    expects = [expect(key, current.revision if current else 0)]
    return await committed(store, commit_of(Put(key, value), expects=expects))


async def remove(store: ClusterStore, key: Key) -> StoreRevision:
    """Remove what stands at ``key``; the revision."""
    current = await read(store, key)
    expects = [expect(key, current.revision if current else 0)]
    return await committed(store, commit_of(Delete(key), expects=expects))


async def next_event(watch: AsyncIterator[WatchEvent]) -> WatchEvent:
    """The next event of a watch; a watch that stays silent fails the rule."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await anext(watch)


async def next_batches(watch: AsyncIterator[WatchEvent], number: int) -> list[WatchBatch]:
    """The next ``number`` events of a watch, all of which must be batches."""
    batches = []
    for _ in range(number):
        event = await next_event(watch)
        assert isinstance(event, WatchBatch), event
        batches.append(event)
    return batches

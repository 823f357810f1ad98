"""The ClusterStore suite finds stores that break a promise: a rule catches each fault below."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

import pytest
from attrs import evolve

from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.model.ids import StoreRevision
from persys_core.ports.cluster_store import (
    ClusterStore,
    Commit,
    CommitResult,
    Committed,
    Conflict,
    Key,
    Record,
    Resync,
    Snapshot,
    Versioned,
    WatchBatch,
    WatchEvent,
)
from persys_core.testing.cluster_store import CommitRules, LastingRules
from persys_core.testing.cluster_store_backend import ClusterStoreBackend
from persys_core.testing.cluster_store_watch import WatchRules

Rule: TypeAlias = Callable[[ClusterStoreBackend], Awaitable[None]]


class NoCompare(MemoryClusterStore):
    """Writes whatever is expected."""

    async def commit(self, commit: Commit) -> CommitResult:
        return await super().commit(evolve(commit, expects=()))


class HalfCommit(MemoryClusterStore):
    """Does each write as a commit of its own."""

    async def commit(self, commit: Commit) -> CommitResult:
        result: CommitResult = Committed(self.backend.revision)
        for write in commit.writes:
            result = await super().commit(evolve(commit, writes=(write,)))
        return result


class EagerCommit(MemoryClusterStore):
    """Has done the first write when it finds that an expectation does not hold."""

    async def commit(self, commit: Commit) -> CommitResult:
        result = await super().commit(commit)
        if isinstance(result, Conflict):
            await super().commit(evolve(commit, expects=(), writes=commit.writes[:1]))
        return result


class NoFence(MemoryClusterStore):
    """Ignores creation revisions."""

    async def commit(self, commit: Commit) -> CommitResult:
        compared = [each for each in commit.expects if each.create_revision is None]
        return await super().commit(evolve(commit, expects=tuple(compared)))


class BareConflict(MemoryClusterStore):
    """Tells a loser nothing."""

    async def commit(self, commit: Commit) -> CommitResult:
        result = await super().commit(commit)
        return Conflict(result.revision) if isinstance(result, Conflict) else result


class OldCreation(MemoryClusterStore):
    """Takes the last change for the creation."""

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        found = await super().get(keys)
        return {
            key: each and evolve(each, create_revision=each.revision) for key, each in found.items()
        }


class StaleSnapshot(MemoryClusterStore):
    """Shows a revision that its records are past."""

    async def snapshot(self) -> Snapshot:
        found = await super().snapshot()
        return evolve(found, revision=max(0, found.revision - 1))


class RepeatingWatch(MemoryClusterStore):
    """Delivers every change twice."""

    async def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        async for event in super().watch(after):
            yield event
            yield event


class ForgetfulWatch(MemoryClusterStore):
    """Drops the token, and answers a lost past with nothing at all."""

    async def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        async for event in super().watch(after):
            yield evolve(event, token="") if isinstance(event, WatchBatch) else event


class SplitWatch(MemoryClusterStore):
    """Delivers the changes of one commit one by one."""

    async def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        async for event in super().watch(after):
            if isinstance(event, Resync):
                yield event
                continue
            for change in event.changes:
                yield evolve(event, changes=(change,))


class LateWatch(MemoryClusterStore):
    """Begins with what comes now, whatever was asked for."""

    def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        return super().watch(self.backend.revision)


class Broken(ClusterStoreBackend):
    def __init__(self, kind: Callable[[MemoryClusterBackend], ClusterStore]) -> None:
        self.shared = MemoryClusterBackend()
        self.kind = kind

    async def open(self) -> ClusterStore:
        return self.kind(self.shared)

    async def forget_history(self, store: ClusterStore) -> None:
        self.shared.compact()


CASES: list[tuple[type[MemoryClusterStore], Rule]] = [
    (NoCompare, CommitRules().test_no_increment_is_lost),
    (NoCompare, LastingRules().test_replicas_lose_no_increment),
    (NoCompare, CommitRules().test_zero_means_absent),
    (HalfCommit, CommitRules().test_revision_grows_by_one_per_commit),
    (EagerCommit, CommitRules().test_no_partial_writes),
    (HalfCommit, WatchRules().test_a_commit_arrives_as_one),
    (NoFence, CommitRules().test_creation_revision_is_a_fence),
    (BareConflict, CommitRules().test_conflict_shows_every_key),
    (OldCreation, CommitRules().test_creation_survives_updates),
    (StaleSnapshot, CommitRules().test_snapshots_are_at_one_revision),
    (RepeatingWatch, WatchRules().test_changes_come_once_in_order),
    (ForgetfulWatch, WatchRules().test_a_commit_arrives_as_one),
    (SplitWatch, WatchRules().test_a_commit_arrives_as_one),
    (LateWatch, WatchRules().test_a_lost_past_is_a_resync),
    (LateWatch, WatchRules().test_a_watch_starts_in_the_past),
]


def case_name(value: object) -> str:
    return str(getattr(value, "__name__", value))


@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "rule"), CASES, ids=case_name)
async def test_a_broken_promise_is_found(
    kind: type[MemoryClusterStore], rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store with this fault fails this rule, which a sound one passes."""
    monkeypatch.setattr("persys_core.testing.cluster_store_backend.PATIENCE_SECONDS", 0.05)
    await rule(Broken(MemoryClusterStore))
    with pytest.raises((AssertionError, TimeoutError)):
        await rule(Broken(kind))

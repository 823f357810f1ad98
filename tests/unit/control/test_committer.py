"""Commits of one replica: raced with others, never with itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from persys_core.control.committer import Committer
from persys_core.control.view import ClusterView
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.membership import MemoryMembership
from persys_core.model.cluster import ClusterMarker
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import (
    Commit,
    CommitResult,
    Committed,
    Key,
    Put,
    StoreUnavailableError,
)
from persys_core.ports.observer import Metric
from persys_core.ports.tracer import Span, SpanName
from persys_core.sim.clock import VirtualClock
from persys_core.sim.counting import CountingObserver
from persys_core.testing.virtual import virtual_time

START = datetime(2026, 1, 1, tzinfo=UTC)
SHARE = Resources.of(cpu_millicores=1)
BURST = 200


class DistantStore(MemoryClusterStore):
    """A store that others can overtake: a commit is away for a while before it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = 0
        self.most_at_once = 0

    async def commit(self, commit: Commit) -> CommitResult:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0.005)
            return await super().commit(commit)
        finally:
            self.at_once -= 1


async def committer(
    store: DistantStore, clock: VirtualClock, observer: CountingObserver
) -> tuple[Committer, ClusterView]:
    """A committer over a store that has nothing but the marker."""
    marker = Put(Key.marker(), ClusterMarker("test", START))
    made = await store.commit(Commit((), (marker,), "start"))
    assert isinstance(made, Committed)
    view, membership = ClusterView(), MemoryMembership(ElectionHub(), store, clock, "r1")
    view.load(await store.snapshot())
    ours = Committer(
        store, view, membership, random.Random(1), observer, attempts=2, on_failure=lambda _: None
    )
    ours.marker_revision = made.revision
    return ours, view


@virtual_time()
async def test_a_burst_does_not_race_with_itself(clock: VirtualClock) -> None:
    """200 changes of three records at once all succeed, without one lost race, three at a time."""
    store, observer = DistantStore(), CountingObserver()
    ours, view = await committer(store, clock, observer)

    async def charge(number: int) -> None:
        node_id = f"n{number % 3}"

        def decide() -> tuple[Transaction, None]:
            stored = view.allocation(node_id)
            now = stored.value if stored else Allocation(node_id)
            return Transaction().put(Key.allocation(node_id), now.charge(SHARE), stored), None

        await ours.transact(decide)

    await asyncio.gather(*map(charge, range(BURST)))
    counts = [view.allocation(f"n{number}") for number in range(3)]
    assert sum(each.value.workload_count for each in counts if each) == BURST
    assert observer.count(Metric.COMMIT_CONFLICTS) == 0
    assert store.most_at_once == 3


class FollowingObserver(CountingObserver):
    """Notes each span: its name, how many writes it is about, and how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[str, int, str]] = []

    @contextmanager
    def span(
        self,
        name: SpanName,
        *,
        workload_id: str = "",
        node_id: str = "",
        operation: str = "",
        size: int = 0,
    ) -> Iterator[Span]:
        note = _Note()
        try:
            yield note
        except Exception as error:
            note.ends_as(type(error).__name__)
            raise
        finally:
            self.spans.append((name, size, note.outcome))


class _Note:
    outcome = ""

    def ends_as(self, outcome: str) -> None:
        self.outcome = outcome


class AwayStore(DistantStore):
    """A store that takes the marker and then is away."""

    async def commit(self, commit: Commit) -> CommitResult:
        if commit.expects:
            raise StoreUnavailableError("away")
        return await super().commit(commit)


@virtual_time()
async def test_each_commit_is_a_span_that_says_how_it_ended(clock: VirtualClock) -> None:
    """Committed, lost, or not answered, which is counted too."""
    node = Allocation("n1")
    tx = Transaction().put(Key.allocation("n1"), node.charge(SHARE), None)
    observer = FollowingObserver()
    ours, _ = await committer(DistantStore(), clock, observer)
    await ours.commit(tx)
    await ours.commit(tx)
    away, _ = await committer(AwayStore(), clock, observer)
    with pytest.raises(StoreUnavailableError):
        await away.commit(tx)
    assert observer.spans == [
        ("store.commit", 1, "committed"),
        ("store.commit", 1, "conflict"),
        ("store.commit", 1, "StoreUnavailableError"),
    ]
    assert observer.count(Metric.STORE_FAILURES) == 1


@virtual_time()
async def test_a_commit_that_fails_holds_up_nobody(clock: VirtualClock) -> None:
    """Whoever waited for it decides anew once it has ended, however it ended."""
    store = DistantStore()
    ours, view = await committer(store, clock, CountingObserver())

    def decide() -> tuple[Transaction, None]:
        stored = view.allocation("n1")
        now = stored.value if stored else Allocation("n1")
        return Transaction().put(Key.allocation("n1"), now.charge(SHARE), stored), None

    first = asyncio.create_task(ours.transact(decide))
    await asyncio.sleep(0.001)
    second = asyncio.create_task(ours.transact(decide))
    await asyncio.sleep(0.001)
    first.cancel()
    async with asyncio.timeout(1):
        await second
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()

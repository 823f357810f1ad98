"""Committer: the one way into the store. Compare-and-swap, fenced, recognised in the watch.

Every commit also expects the cluster marker to be the one that this replica started with; a
commit of a singleton loop also expects its leader's record (decisions §3, commits). A lost race
brings the present records into the view, so that the loser decides anew without another read.

Only other replicas are raced with. What this replica has under way is known here: whoever would
meet it waits for its end and then decides on what it left, and few decide at a time. Otherwise a
burst of requests would spend its tries on itself: on three nodes, three of them win per round.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from attrs import define, field

from persys_core.control.gone_nodes import without_empty_ledgers
from persys_core.control.view import ClusterView
from persys_core.model.errors import FrozenError
from persys_core.placement.ledger import LedgerError, Transaction
from persys_core.ports.cluster_store import (
    Change,
    ClusterStore,
    Commit,
    Committed,
    Conflict,
    Delete,
    Expectation,
    Key,
    Record,
    StoreUnavailableError,
    Versioned,
    Write,
)
from persys_core.ports.membership import Leadership, Membership
from persys_core.ports.observer import Metric, Observer
from persys_core.ports.tracer import SpanName

__all__ = ["Committer", "ConflictLimitError", "LeadershipLostError"]

T = TypeVar("T")

DECIDING_AT_ONCE = 16


class LeadershipLostError(Exception):
    """This replica no longer leads; the loop that meets it stops, nothing was written."""


class ConflictLimitError(StoreUnavailableError):
    """Other writers won every time; nothing was written, the request may be tried again."""


@define(eq=False)
class Committer:
    """Commits transactions for one replica."""

    _store: ClusterStore
    _view: ClusterView
    _membership: Membership
    _rng: random.Random
    _observer: Observer
    _attempts: int
    _on_failure: Callable[[Exception], None]
    _complete: Callable[[Transaction], Transaction] = lambda tx: tx
    """Adds to a transaction what follows from it (the records of volumes)."""

    marker_revision: int = field(default=0, init=False)
    """Creation revision of the marker that this replica serves; 0 before the start."""

    _deciding: asyncio.Semaphore = field(
        factory=lambda: asyncio.Semaphore(DECIDING_AT_ONCE), init=False
    )
    _under_way: dict[Key, asyncio.Event] = field(factory=dict, init=False)
    """Per key that a commit of ours is writing at the moment: set at that commit's end."""

    async def commit(
        self, tx: Transaction, leadership: Leadership | None = None
    ) -> Committed | Conflict:
        """Commit once. With ``leadership`` the commit is fenced, and refused after its loss."""
        if not tx.writes:
            return Committed(self._view.revision)
        return await self._commit(self._complete(tx), leadership)

    async def _commit(self, tx: Transaction, leadership: Leadership | None) -> Committed | Conflict:
        commit = self._sealed(without_empty_ledgers(tx, self._view), leadership)
        ended = asyncio.Event()
        written = dict.fromkeys((write.key for write in commit.writes), ended)
        self._under_way.update(written)
        try:
            result = await self._sent(commit)
            self._learn(commit, result)
        except StoreUnavailableError as error:
            self._observer.increment(Metric.STORE_FAILURES, {})
            self._on_failure(error)
            raise
        finally:
            for key in written:
                if self._under_way.get(key) is ended:
                    del self._under_way[key]
            ended.set()
        if isinstance(result, Conflict):
            self._refuse_foreign(result.current, leadership)
        return result

    async def _sent(self, commit: Commit) -> Committed | Conflict:
        with self._observer.span(SpanName.COMMIT, size=len(commit.writes)) as span:
            result = await self._store.commit(commit)
            span.ends_as("committed" if isinstance(result, Committed) else "conflict")
            return result

    async def compare(
        self, read: Transaction, leadership: Leadership | None = None
    ) -> Committed | Conflict:
        """Hold what was read against the store, and write nothing; a conflict brings the truth."""
        return await self._commit(Transaction(expects=read.expects), leadership)

    async def transact(
        self,
        decide: Callable[[], tuple[Transaction, T]],
        leadership: Leadership | None = None,
    ) -> T:
        """Decide and commit until it holds; each lost race means that somebody else got on.

        What a decision to write nothing rests on is compared all the same: an *unchanged* that
        comes from a view which is late would lose the wish that it answers.
        """
        async with self._deciding:
            for _ in range(self._attempts):
                try:
                    tx, answer = await self._decide_in_peace(decide)
                except LedgerError as error:
                    # A view that is late may contradict itself; one that is not is a bug.
                    if isinstance(await self.compare(error.read, leadership), Committed):
                        raise
                    continue
                if not tx.expects or isinstance(await self._commit(tx, leadership), Committed):
                    return answer
        raise ConflictLimitError(
            f"gave up after {self._attempts} lost races with other writers; try again"
        )

    async def _decide_in_peace(
        self, decide: Callable[[], tuple[Transaction, T]]
    ) -> tuple[Transaction, T]:
        """A decision that rests on nothing that this replica is changing at the moment."""
        while True:
            tx, answer = decide()
            tx = self._complete(tx)
            met = next((e.key for e in tx.expects if e.key in self._under_way), None)
            if met is None:
                return tx, answer
            await self._under_way[met].wait()

    def _sealed(self, tx: Transaction, leadership: Leadership | None) -> Commit:
        expects = tx.expects
        if not any(expected.key == Key.marker() for expected in expects):
            marker = Expectation(Key.marker(), create_revision=self.marker_revision)
            expects = (*expects, marker)
        if leadership is not None:
            self.require(leadership)
            expects = (*expects, leadership.fence)
        return Commit(expects, tx.writes, f"{self._rng.getrandbits(64):016x}")

    def require(self, leadership: Leadership) -> None:
        """Raise LeadershipLostError unless the lease of ``leadership`` holds at this moment."""
        if not self._membership.is_valid(leadership):
            raise LeadershipLostError(leadership.election)

    def _refuse_foreign(
        self, current: Mapping[Key, Versioned[Record] | None], leadership: Leadership | None
    ) -> None:
        """A lost fence or another marker is no race that a next try could win."""
        if leadership is not None and leadership.fence.key in current:
            leader = current[leadership.fence.key]
            if leader is None or leader.create_revision != leadership.epoch:
                raise LeadershipLostError(leadership.election)
        if Key.marker() in current:
            marker = current[Key.marker()]
            if marker is None or marker.create_revision != self.marker_revision:
                error = FrozenError(
                    "scheduler recovery mode: the store is not the one that "
                    "this replica started with"
                )
                self._on_failure(error)
                raise error

    def _learn(self, commit: Commit, result: Committed | Conflict) -> None:
        match result:
            case Committed() if not commit.writes:
                # Compared only: what the view has not seen yet may lie before this revision.
                return
            case Committed(revision):
                self._view.take_own(
                    revision, [self._change(write, revision) for write in commit.writes]
                )
                for write in commit.writes:
                    self._observer.increment(Metric.STORE_WRITES, {"category": str(write.key.kind)})
            case Conflict(revision, current):
                self._observer.increment(Metric.COMMIT_CONFLICTS, {})
                self._view.refresh(revision, current)

    def _change(self, write: Write, revision: int) -> Change:
        if isinstance(write, Delete):
            return Change(write.key, None)
        known = self._view.get(write.key)
        created = known.create_revision if known else revision
        return Change(write.key, Versioned(write.value, revision, created))

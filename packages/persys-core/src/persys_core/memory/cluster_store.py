"""ClusterStore in memory: what the port promises, in its shortest form.

One ``MemoryClusterBackend`` stands for the database; every replica attaches a store of its own.
Records are held as they are, nothing is serialised. A commit is done within one step of the event
loop, so it is atomic by itself. What a commit means is decided by whoever makes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from persys_core.memory.commit_rules import check_commit, holds
from persys_core.model.ids import StoreRevision
from persys_core.ports.cluster_store import (
    Change,
    Commit,
    CommitResult,
    Committed,
    Conflict,
    Guarantee,
    Key,
    Put,
    Record,
    Resync,
    Snapshot,
    Versioned,
    WatchBatch,
    WatchEvent,
    Write,
)

__all__ = ["CommitCallback", "MemoryClusterBackend", "MemoryClusterStore"]

CommitCallback = Callable[[Commit, StoreRevision], None]
DEFAULT_HISTORY = 10_000


class MemoryClusterBackend:
    """The shared database: records, their revisions and the last ``history`` changes.

    Everything here is synchronous, so that a simulator can apply a commit and lose the answer, or
    look at all records between two steps.
    """

    def __init__(self, history: int = DEFAULT_HISTORY) -> None:
        self._records: dict[Key, Versioned[Record]] = {}
        self._revision: StoreRevision = 0
        self._history: deque[WatchBatch] = deque()
        self._capacity = history
        self._generation = 0
        # A dict, since a set of events has no order that a run could repeat.
        self._bells: dict[asyncio.Event, None] = {}
        self._callbacks: list[CommitCallback] = []

    @property
    def revision(self) -> StoreRevision:
        """The revision of the last commit that changed anything."""
        return self._revision

    @property
    def generation(self) -> int:
        """How often the content was replaced by ``restore``."""
        return self._generation

    def on_commit(self, callback: CommitCallback) -> None:
        """Call ``callback(commit, revision)`` after each commit that changed anything.

        It runs before the writer gets its answer; what it raises reaches the writer.
        """
        self._callbacks.append(callback)

    def read(self, key: Key) -> Versioned[Record] | None:
        """One record as it stands now."""
        return self._records.get(key)

    def snapshot(self) -> Snapshot:
        """Every record as it stands now."""
        return Snapshot(self._revision, dict(self._records))

    def apply(self, commit: Commit) -> CommitResult:
        """Do all of ``commit`` or nothing; see ``ClusterStore.commit``."""
        check_commit(commit)
        if not all(holds(wanted, self.read(wanted.key)) for wanted in commit.expects):
            return Conflict(self._revision, {e.key: self.read(e.key) for e in commit.expects})
        revision = self._revision + 1
        changes = tuple(filter(None, (self._write(write, revision) for write in commit.writes)))
        if changes:
            self._publish(WatchBatch(revision, changes, commit.token))
            for callback in self._callbacks:
                callback(commit, revision)
        return Committed(self._revision)

    def compact(self) -> None:
        """Forget every change up to now; who asks for them is answered with a Resync."""
        self._history.clear()

    def restore(self, snapshot: Snapshot) -> None:
        """Replace everything, as a restored backup does; every watcher gets a Resync."""
        self._records = dict(snapshot.records)
        self._revision = snapshot.revision
        self._generation += 1
        self._history.clear()
        self._ring()

    def event_after(self, revision: StoreRevision) -> WatchEvent | None:
        """The first event that a watcher at ``revision`` has not seen; ``None`` at the end."""
        if revision == self._revision:
            return None
        behind = self._revision - revision
        if not 0 < behind <= len(self._history):
            return Resync(self.snapshot())
        return self._history[-behind]

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set by each change, while the block runs."""
        bell = asyncio.Event()
        self._bells[bell] = None
        try:
            yield bell
        finally:
            del self._bells[bell]

    def _write(self, write: Write, revision: StoreRevision) -> Change | None:
        before = self._records.get(write.key)
        if isinstance(write, Put):
            created = before.create_revision if before else revision
            after: Versioned[Record] = Versioned(write.value, revision, created)
            self._records[write.key] = after
            return Change(write.key, after)
        if before is None:
            return None
        del self._records[write.key]
        return Change(write.key, None)

    def _publish(self, batch: WatchBatch) -> None:
        self._revision = batch.revision
        self._history.append(batch)
        if len(self._history) > self._capacity:
            self._history.popleft()
        self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.set()


class MemoryClusterStore:
    """One replica's store on a shared backend."""

    def __init__(self, backend: MemoryClusterBackend | None = None) -> None:
        self._backend = backend or MemoryClusterBackend()

    @property
    def backend(self) -> MemoryClusterBackend:
        """What this store is attached to."""
        return self._backend

    @property
    def guarantees(self) -> Guarantee:
        """All but durability: memory ends with the process."""
        return Guarantee.CAS | Guarantee.WATCH | Guarantee.LEASE | Guarantee.SHARED

    async def snapshot(self) -> Snapshot:
        """Every record at one revision."""
        return self._backend.snapshot()

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        """The named records as they stand now."""
        return {key: self._backend.read(key) for key in keys}

    async def commit(self, commit: Commit) -> CommitResult:
        """Do all of ``commit`` or nothing. Raises CommitTooLargeError and ValueError."""
        return self._backend.apply(commit)

    async def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        """Every change after ``after``; one that fell behind the history gets a Resync.

        A revision that the store never reached (another store was put in its place) is answered
        with a Resync, too.
        """
        seen, generation = after, self._backend.generation
        with self._backend.listening() as bell:
            while True:
                bell.clear()
                if generation != self._backend.generation:
                    event: WatchEvent | None = Resync(self._backend.snapshot())
                    generation = self._backend.generation
                else:
                    event = self._backend.event_after(seen)
                if event is None:
                    await bell.wait()
                    continue
                seen = event.snapshot.revision if isinstance(event, Resync) else event.revision
                yield event

    @property
    def backend_id(self) -> str:
        """None: it ends with the process."""
        return ""

    async def compact(self, before: StoreRevision) -> None:
        """Nothing to do: the history is bounded."""

    async def probe(self, *, writing: bool = False) -> StoreRevision:
        """The present revision."""
        return self._backend.revision

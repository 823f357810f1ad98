"""The key-value contract on a dict: for tests of what is built on the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

from persys_adapters.kv.contract import (
    Applied,
    Compacted,
    KvBatch,
    KvChange,
    KvEntry,
    KvEvent,
    KvRead,
    Page,
    Refused,
    Txn,
    TxnResult,
    holds,
)
from persys_core.model.ids import StoreRevision

__all__ = ["DictKv"]


class DictKv:
    """Holds everything in memory; a listing comes in pages of ``page_size`` entries."""

    def __init__(self, page_size: int = 3) -> None:
        self.entries: dict[bytes, KvEntry] = {}
        self._page_size = page_size
        self._revision: StoreRevision = 0
        self._batches: list[KvBatch] = []
        self._changed = asyncio.Event()

    async def get(self, keys: Iterable[bytes]) -> KvRead:
        """The named keys as they stand now."""
        found = {key: self.entries[key] for key in keys if key in self.entries}
        return KvRead(self._revision, found)

    async def pages(self, prefixes: Sequence[bytes]) -> AsyncGenerator[Page, None]:
        """Every key under ``prefixes`` as it stood at the first page."""
        revision = self._revision
        keys = sorted(key for key in self.entries if key.startswith(tuple(prefixes)))
        found = [self.entries[key] for key in keys]
        yield Page(revision, found[: self._page_size])
        for start in range(self._page_size, len(found), self._page_size):
            await asyncio.sleep(0)
            yield Page(revision, found[start : start + self._page_size])

    async def txn(self, txn: Txn) -> TxnResult:
        """Do all of ``txn`` or nothing."""
        if not all(holds(each, self.entries.get(each.key)) for each in txn.compares):
            read = await self.get({compare.key for compare in txn.compares})
            return Refused(self._revision, read.entries)
        revision = self._revision + 1
        changes = [self._put(key, value, revision) for key, value in txn.puts]
        for key in txn.deletes:
            if self.entries.pop(key, None) is not None:
                changes.append(KvChange(key, None))
        if changes:
            self._publish(KvBatch(revision, tuple(changes)))
        return Applied(self._revision, changed=bool(changes))

    async def watch(
        self, prefixes: Sequence[bytes], after: StoreRevision
    ) -> AsyncGenerator[KvEvent, None]:
        """Each change after ``after``."""
        seen = after
        while True:
            if seen == self._revision:
                self._changed.clear()
                await self._changed.wait()
                continue
            behind = self._revision - seen
            if not 0 < behind <= len(self._batches):
                yield Compacted()
                return
            batch = self._batches[-behind]
            seen = batch.revision
            yield _under(batch, tuple(prefixes))

    async def revision(self) -> StoreRevision:
        """The present revision."""
        return self._revision

    def compact(self) -> None:
        """Forget every change up to now."""
        self._batches.clear()

    def _put(self, key: bytes, value: bytes, revision: StoreRevision) -> KvChange:
        before = self.entries.get(key)
        entry = KvEntry(key, value, revision, before.create_revision if before else revision)
        self.entries[key] = entry
        return KvChange(key, entry)

    def _publish(self, batch: KvBatch) -> None:
        self._revision = batch.revision
        self._batches.append(batch)
        self._changed.set()


def _under(batch: KvBatch, prefixes: tuple[bytes, ...]) -> KvBatch:
    changes = tuple(change for change in batch.changes if change.key.startswith(prefixes))
    return KvBatch(batch.revision, changes)

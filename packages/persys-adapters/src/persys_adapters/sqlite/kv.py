"""The key-value contract on a SQLite file, without ever blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

from persys_adapters.kv.contract import (
    Compacted,
    KvBatch,
    KvEvent,
    KvRead,
    Page,
    Txn,
    TxnResult,
)
from persys_adapters.sqlite.file import Listing, SqliteFile
from persys_adapters.sqlite.thread import SqlThread
from persys_core.model.ids import StoreRevision

__all__ = ["SqliteKv"]


class SqliteKv:
    """One file, used by this process alone; several watchers and writers may share the object."""

    def __init__(self, thread: SqlThread) -> None:
        self._thread = thread
        self._bells: set[asyncio.Event] = set()

    async def get(self, keys: Iterable[bytes]) -> KvRead:
        """The named keys, all at one revision."""
        wanted = list(keys)
        return await self._thread.call(lambda file: file.get(wanted))

    async def pages(self, prefixes: Sequence[bytes]) -> AsyncGenerator[Page, None]:
        """Every key under ``prefixes``, all at one revision; commits go on between the pages."""
        listings: list[Listing] = []  # filled in the thread, so that a cancelled wait loses none
        try:
            await self._thread.call(lambda file: listings.append(file.listing(prefixes)))
            while (page := await self._thread.call(lambda _: listings[0].next_page())) is not None:
                yield page
        finally:
            self._thread.call_later(lambda _: _close(listings))

    async def txn(self, txn: Txn) -> TxnResult:
        """Do all of ``txn`` or nothing; answered when it is on disk."""
        result = await self._thread.write(txn)
        self._ring()
        return result

    async def watch(
        self, prefixes: Sequence[bytes], after: StoreRevision
    ) -> AsyncGenerator[KvEvent, None]:
        """Each change after ``after``, once, in order."""
        seen, wanted = after, tuple(prefixes)
        bell = asyncio.Event()
        self._bells.add(bell)
        try:
            while True:
                bell.clear()
                batches = await self._changes_after(seen)
                if batches is None:
                    yield Compacted()
                    return
                for batch in batches:
                    seen = batch.revision
                    yield _under(batch, wanted)
                if not batches:
                    await bell.wait()
        finally:
            self._bells.discard(bell)

    async def revision(self) -> StoreRevision:
        """The present revision; raises where the file cannot be used any more."""
        return await self._thread.call(lambda file: file.revision)

    async def compact(self) -> None:
        """Forget every change up to now."""
        await self._thread.call(SqliteFile.compact)

    async def aclose(self) -> None:
        """Close the file; watchers end with StoreUnavailableError."""
        await self._thread.stop()
        self._ring()

    async def _changes_after(self, revision: StoreRevision) -> list[KvBatch] | None:
        return await self._thread.call(lambda file: file.changes_after(revision))

    def _ring(self) -> None:
        for bell in self._bells:
            bell.set()


def _under(batch: KvBatch, prefixes: tuple[bytes, ...]) -> KvBatch:
    changes = tuple(change for change in batch.changes if change.key.startswith(prefixes))
    return KvBatch(batch.revision, changes)


def _close(listings: Sequence[Listing]) -> None:
    for listing in listings:
        listing.close()

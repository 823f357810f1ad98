"""The key-value contract on etcd.

Decided here: how a transaction of the contract is one of etcd's, and when a watch has to begin
anew because the store went back. Formats are decided in ``records``; how etcd is spoken to, and
what is tried again, in ``client``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress

from persys_adapters.etcd.client import (
    CompactedError,
    Compare,
    DeleteKey,
    DeleteResult,
    EtcdClient,
    GetKey,
    KeyValue,
    NoSpaceError,
    Put,
    RangeResult,
    WatchBatch,
    end_of_prefix,
)
from persys_adapters.etcd.errors import translated
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
)
from persys_adapters.kv.contract import Compare as Wanted
from persys_adapters.kv.contract import TxnResult as KvTxnResult
from persys_core.model.ids import StoreRevision

__all__ = ["EtcdKv"]

KEYS_PER_READ = 100
"""A server takes at most 128 operations in one transaction, unless it is told otherwise."""


class EtcdKv:
    """An etcd cluster, or the part of it under ``prefix``; the client is the caller's to close."""

    def __init__(self, client: EtcdClient, prefix: bytes = b"") -> None:
        self._client = client
        self._prefix = prefix
        self._cluster_id = 0

    @property
    def cluster_id(self) -> int:
        """The identity of the etcd cluster that answered last; 0 before any answer."""
        return self._cluster_id

    async def get(self, keys: Iterable[bytes]) -> KvRead:
        """The named keys, all at one revision.

        A transaction reads them in one go. But an etcd above its quota refuses even those that
        only read (3.5.1 does), and must still be read from: then they are read one by one.
        """
        wanted = [self._prefix + key for key in keys]
        if not wanted:
            return KvRead(await self.revision(), {})
        with translated():
            try:
                ranges = await self._together(wanted[:KEYS_PER_READ])
            except NoSpaceError:
                ranges = [await self._client.range(wanted[0])]
            revision = self._note(ranges[0].cluster_id, ranges[0].revision)
            for key in wanted[len(ranges) :]:
                ranges.append(await self._client.range(key, revision=revision))
        return KvRead(revision, self._entries(ranges))

    async def _together(self, keys: Sequence[bytes]) -> list[RangeResult]:
        done = await self._client.txn([], success=[GetKey(key) for key in keys])
        return [answer for answer in done.responses if isinstance(answer, RangeResult)]

    async def pages(self, prefixes: Sequence[bytes]) -> AsyncGenerator[Page, None]:
        """Every key under ``prefixes``, all at one revision; at least one page, maybe empty."""
        revision: StoreRevision = 0
        with translated():
            for prefix in prefixes:
                start = self._prefix + prefix
                pages = self._client.pages(start, end_of_prefix(start), revision=revision)
                async with aclosing(pages):
                    async for page in pages:
                        revision = revision or self._note(page.cluster_id, page.revision)
                        yield Page(revision, [self._entry(kv) for kv in page.kvs])

    async def txn(self, txn: Txn) -> KvTxnResult:
        """Do all of ``txn`` or nothing. An effect-free one moves no revision."""
        compared = list(dict.fromkeys(wanted.key for wanted in txn.compares))
        with translated():
            result = await self._client.txn(
                [self._compare(wanted) for wanted in txn.compares],
                success=[
                    *(Put(self._prefix + key, value) for key, value in txn.puts),
                    *(DeleteKey(self._prefix + key) for key in txn.deletes),
                ],
                failure=[GetKey(self._prefix + key) for key in compared],
            )
        self._note(result.cluster_id, result.revision)
        if not result.succeeded:
            ranges = (each for each in result.responses if isinstance(each, RangeResult))
            return Refused(result.revision, self._entries(ranges))
        removed = any(
            answer.deleted for answer in result.responses if isinstance(answer, DeleteResult)
        )
        return Applied(result.revision, changed=bool(txn.puts) or removed)

    async def watch(
        self, prefixes: Sequence[bytes], after: StoreRevision
    ) -> AsyncGenerator[KvEvent, None]:
        """Each change after ``after``, once, in order; one stream for all of ``prefixes``.

        A store whose revision is lower than one that was seen was put back: its watchers would
        wait for a revision that never comes (field report E03), so they are told to list again.
        """
        if await self.revision() < after:
            yield Compacted()
            return
        wanted = tuple(self._prefix + prefix for prefix in prefixes)
        start, end = min(wanted), end_of_prefix(max(wanted))
        with translated():
            events = self._client.watch(start, end, start_revision=after + 1)
            async with aclosing(events):
                async for event in events:
                    if not isinstance(event, WatchBatch):
                        yield Compacted()
                        return
                    yield self._batch(event, wanted)

    async def revision(self) -> StoreRevision:
        """The present revision, agreed on by a majority of the members."""
        with translated():
            found = await self._client.range(self._prefix + b"/persys/cluster", keys_only=True)
        return self._note(found.cluster_id, found.revision)

    async def compact(self, revision: StoreRevision) -> None:
        """Forget every change before ``revision``; what is forgotten already is no error."""
        with translated(), suppress(CompactedError):
            await self._client.compact(revision)

    def _note(self, cluster_id: int, revision: StoreRevision) -> StoreRevision:
        self._cluster_id = cluster_id or self._cluster_id
        return revision

    def _batch(self, batch: WatchBatch, wanted: tuple[bytes, ...]) -> KvBatch:
        return KvBatch(
            batch.revision,
            tuple(
                KvChange(self._own(event.key), None if event.is_delete else self._entry(event.kv))
                for event in batch.events
                if event.key.startswith(wanted)
            ),
        )

    def _compare(self, wanted: Wanted) -> Compare:
        key = self._prefix + wanted.key
        if wanted.mod_revision is not None:
            return Compare(key, mod_revision=wanted.mod_revision)
        return Compare(key, create_revision=wanted.create_revision)

    def _entries(self, ranges: Iterable[RangeResult]) -> dict[bytes, KvEntry]:
        found = (self._entry(kv) for each in ranges for kv in each.kvs)
        return {entry.key: entry for entry in found}

    def _entry(self, kv: KeyValue) -> KvEntry:
        return KvEntry(self._own(kv.key), kv.value, kv.mod_revision, kv.create_revision)

    def _own(self, key: bytes) -> bytes:
        return key.removeprefix(self._prefix)

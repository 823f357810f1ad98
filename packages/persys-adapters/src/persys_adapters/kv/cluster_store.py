"""ClusterStore on any store that keeps the key-value contract.

Decided here: how a commit becomes a transaction of bytes, how its writer is recognised (every
value carries the commit's token), and the three answers about a commit whose outcome nobody told.
Formats are decided in ``records``, promises of storage by the ``Kv`` underneath.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing

from persys_adapters.kv.contract import (
    Applied,
    Compacted,
    Compare,
    Kv,
    KvBatch,
    KvChange,
    KvEntry,
    Refused,
    Txn,
    holds,
)
from persys_adapters.records.codec import UnreadableRecordError, decode, encode
from persys_adapters.records.json_values import JsonObject
from persys_adapters.records.layout import PREFIXES, PROBE_PATH, key_at, path_of
from persys_core.memory.commit_rules import check_commit
from persys_core.model.ids import StoreRevision
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    Change,
    Commit,
    CommitResult,
    Committed,
    CommitTooLargeError,
    Conflict,
    Guarantee,
    Key,
    Put,
    Record,
    Resync,
    Snapshot,
    StoreFullError,
    StoreUnavailableError,
    Versioned,
    WatchBatch,
    WatchEvent,
)

__all__ = ["MAX_COMMIT_BYTES", "KvClusterStore", "UnreadableCallback", "ignore"]

MAX_COMMIT_BYTES = 1024 * 1024
"""Largest sum of keys and values of one commit; etcd refuses requests above 1.5 MiB."""

SETTLE_SECONDS = 3.0
"""How long a commit whose outcome nobody told is tried again."""
_FIRST_PAUSE = 0.05
_OWN_COMMITS = 1024
_PREFIXES = tuple(prefix.encode() for prefix in PREFIXES)

Found = Versioned[Record] | None
UnreadableCallback = Callable[[str, UnreadableRecordError], None]


def ignore(path: str, error: UnreadableRecordError) -> None:
    """The default: the snapshot shows what could not be read."""


class KvClusterStore:
    """Records in a key-value store.

    A record that cannot be read counts as absent everywhere but in its revision: nothing that
    expects it to be absent succeeds, so it is never overwritten by mistake. ``on_unreadable`` is
    called for each, with its path. Fields that we do not know are kept in memory with their key
    and written again with it.
    """

    def __init__(
        self, kv: Kv, guarantees: Guarantee, on_unreadable: UnreadableCallback = ignore
    ) -> None:
        self._kv = kv
        self._guarantees = guarantees
        self._on_unreadable = on_unreadable
        self._unknown: dict[Key, JsonObject] = {}
        self._own: OrderedDict[StoreRevision, Commit] = OrderedDict()

    @property
    def guarantees(self) -> Guarantee:
        """What the store underneath promises."""
        return self._guarantees

    async def snapshot(self) -> Snapshot:
        """Every record at one revision."""
        revision: StoreRevision = 0
        records: dict[Key, Versioned[Record]] = {}
        quarantined: list[str] = []
        async with aclosing(self._kv.pages(_PREFIXES)) as pages:
            async for page in pages:
                revision = page.revision
                for entry in page.entries:
                    self._add(entry, records, quarantined)
        return Snapshot(revision, records, tuple(quarantined))

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        """The named records as they stand now, all at one revision."""
        wanted = list(keys)
        read = await self._kv.get(map(_bytes_of, wanted))
        return {key: self._found(key, read.entries) for key in wanted}

    async def commit(self, commit: Commit) -> CommitResult:
        """Do all of ``commit`` or nothing; an outcome that was not told is found out.

        Raises CommitTooLargeError, StoreUnavailableError and, where even the reading back
        fails, AmbiguousCommitError.
        """
        check_commit(commit)
        txn = self._txn(commit)
        try:
            return await self._do(commit, txn)
        except AmbiguousCommitError as error:
            return await self._settle(commit, txn, error)

    async def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        """Every change after ``after``; a past that is gone is answered with a Resync."""
        seen = after
        while True:
            async with aclosing(self._kv.watch(_PREFIXES, seen)) as events:
                async for event in events:
                    if isinstance(event, Compacted):
                        break
                    seen = event.revision
                    yield self._batch(event)
            self._own.clear()
            snapshot = await self.snapshot()
            seen = snapshot.revision
            yield Resync(snapshot)

    @property
    def backend_id(self) -> str:
        """The store underneath has no identity of its own, unless a subclass knows one."""
        return ""

    async def probe(self, *, writing: bool = False) -> StoreRevision:
        """The present revision; ``writing`` puts a key that is no record."""
        if writing:
            return (await self._kv.txn(Txn(puts=((PROBE_PATH.encode(), b""),)))).revision
        return await self._kv.revision()

    async def compact(self, before: StoreRevision) -> None:
        """Nothing to do: the store underneath keeps its history small, unless a subclass."""

    def _txn(self, commit: Commit) -> Txn:
        txn = Txn(
            tuple(
                Compare(_bytes_of(wanted.key), wanted.revision, wanted.create_revision)
                for wanted in commit.expects
            ),
            tuple(
                (_bytes_of(write.key), self._value(write, commit.token))
                for write in commit.writes
                if isinstance(write, Put)
            ),
            tuple(_bytes_of(write.key) for write in commit.writes if not isinstance(write, Put)),
        )
        size = sum(len(key) + len(value) for key, value in txn.puts)
        if size > MAX_COMMIT_BYTES:
            raise CommitTooLargeError(
                f"a commit of {size} bytes; at most {MAX_COMMIT_BYTES} are allowed: make its "
                f"largest record smaller, or split it into several commits"
            )
        return txn

    def _value(self, put: Put, token: str) -> bytes:
        return encode(put.key, put.value, token, self._unknown.get(put.key))

    async def _do(self, commit: Commit, txn: Txn) -> CommitResult:
        result = await self._kv.txn(txn)
        match result:
            case Applied():
                return self._committed(commit, result.revision, changed=result.changed)
            case Refused():
                return self._conflict(commit, result.revision, result.entries)

    def _committed(
        self, commit: Commit, revision: StoreRevision, *, changed: bool = True
    ) -> Committed:
        if changed:
            self._own[revision] = commit
        if len(self._own) > _OWN_COMMITS:
            self._own.popitem(last=False)
        for write in commit.writes:
            if not isinstance(write, Put):
                self._unknown.pop(write.key, None)
        return Committed(revision)

    def _conflict(
        self, commit: Commit, revision: StoreRevision, entries: Mapping[bytes, KvEntry]
    ) -> Conflict:
        return Conflict(
            revision, {wanted.key: self._found(wanted.key, entries) for wanted in commit.expects}
        )

    async def _settle(self, commit: Commit, txn: Txn, error: AmbiguousCommitError) -> CommitResult:
        """Find out what became of a commit; where nothing did, try it again, for a while.

        Trying again is safe: had the first attempt been done after all, the second one is
        refused, and the token tells that it was ours. A backend whose leader changes is back
        within seconds, so whoever waits for the commit rather waits than is told that nobody knows.
        """
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + SETTLE_SECONDS, _FIRST_PAUSE
        while True:
            try:
                told = await self._outcome(commit, txn)
                if told is not None:
                    return told
                if loop.time() > until:
                    raise error
                result = await self._do(commit, txn)
                if isinstance(result, Committed):
                    return result
            except StoreUnavailableError as again:
                if loop.time() > until or isinstance(again, StoreFullError):
                    raise error from again
                await asyncio.sleep(pause)
                pause *= 2

    async def _outcome(self, commit: Commit, txn: Txn) -> CommitResult | None:
        """Applied, lost, or ``None`` for: as if it had never been sent (E06)."""
        keys = {compare.key for compare in txn.compares} | {key for key, _ in txn.puts}
        read = await self._kv.get(keys | set(txn.deletes))
        for key, _ in txn.puts:
            entry = read.entries.get(key)
            if entry is not None and commit.token and _token_of(key, entry) == commit.token:
                return self._committed(commit, entry.mod_revision)
        if txn.deletes and not txn.puts and not read.entries.keys() & set(txn.deletes):
            return self._committed(commit, read.revision, changed=False)
        if all(holds(compare, read.entries.get(compare.key)) for compare in txn.compares):
            return None
        return self._conflict(commit, read.revision, read.entries)

    def _add(
        self, entry: KvEntry, records: dict[Key, Versioned[Record]], quarantined: list[str]
    ) -> None:
        key = key_at(_path(entry.key))
        if key is None:
            return
        found = self._decoded(key, entry)
        if found is None:
            quarantined.append(_path(entry.key))
        else:
            records[key] = found[0]

    def _found(self, key: Key, entries: Mapping[bytes, KvEntry]) -> Found:
        entry = entries.get(_bytes_of(key))
        found = self._decoded(key, entry) if entry is not None else None
        return found[0] if found is not None else None

    def _decoded(self, key: Key, entry: KvEntry) -> tuple[Versioned[Record], str] | None:
        """The record and the token of its writer; ``None`` where it cannot be read."""
        try:
            decoded = decode(key, entry.value)
        except UnreadableRecordError as error:
            self._on_unreadable(path_of(key), error)
            return None
        if decoded.unknown:
            self._unknown[key] = decoded.unknown
        else:
            self._unknown.pop(key, None)
        return Versioned(decoded.record, entry.mod_revision, entry.create_revision), decoded.token

    def _batch(self, batch: KvBatch) -> WatchBatch:
        own = self._own.get(batch.revision)
        writes = own.writes if own else ()
        values = {write.key: write.value for write in writes if isinstance(write, Put)}
        token = own.token if own else ""
        changes: list[Change] = []
        for change in batch.changes:
            key = key_at(_path(change.key))
            if key is None:
                continue
            seen = self._change(key, change, values.get(key))
            if seen is not None:
                changes.append(seen[0])
                token = token or seen[1]
        return WatchBatch(batch.revision, tuple(changes), token)

    def _change(self, key: Key, change: KvChange, own: Record | None) -> tuple[Change, str] | None:
        """The change and its writer's token; ``None`` for a record that cannot be read."""
        entry = change.entry
        if entry is None:
            self._unknown.pop(key, None)
            return Change(key, None), ""
        if own is not None:
            known = Versioned(own, entry.mod_revision, entry.create_revision)
            return Change(key, known), ""
        found = self._decoded(key, entry)
        return (Change(key, found[0]), found[1]) if found is not None else None


def _bytes_of(key: Key) -> bytes:
    return path_of(key).encode(errors="surrogateescape")


def _path(raw: bytes) -> str:
    """Another program may write keys that are no UTF-8; the way back to bytes stays exact."""
    return raw.decode(errors="surrogateescape")


def _token_of(path: bytes, entry: KvEntry) -> str:
    """The token of the commit that wrote ``entry``; empty where it cannot be read."""
    key = key_at(_path(path))
    try:
        return decode(key, entry.value).token if key is not None else ""
    except UnreadableRecordError:
        return ""

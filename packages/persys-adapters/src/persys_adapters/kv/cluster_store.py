"""ClusterStore on any store that keeps the key-value contract.

Decided here: how records are read from bytes, how a commit's writer is recognised (every value
carries the commit's token), and the three answers about a commit whose outcome nobody told.
Formats are decided in ``records``, what a commit means for records in an older layout in
``kv.legacy``, promises of storage by the ``Kv`` underneath.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from contextlib import aclosing

from persys_adapters.kv.contract import (
    Applied,
    Compacted,
    Kv,
    KvBatch,
    KvChange,
    KvEntry,
    Refused,
    Txn,
    holds,
)
from persys_adapters.kv.legacy import (
    as_bytes,
    halves_in,
    places_of,
    touched_by,
    transaction_of,
)
from persys_adapters.records.codec import UnreadableRecordError, decode, encode
from persys_adapters.records.json_values import JsonObject
from persys_adapters.records.layout import PREFIXES, PROBE_PATH, key_at, path_of
from persys_adapters.records.legacy import HALVES, legacy_id
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
    and written again with it. A workload in the reference's older layout is two records like any
    other; its first write moves it.
    """

    def __init__(
        self, kv: Kv, guarantees: Guarantee, on_unreadable: UnreadableCallback = ignore
    ) -> None:
        self._kv = kv
        self._guarantees = guarantees
        self._on_unreadable = on_unreadable
        self._unknown: dict[Key, JsonObject] = {}
        self._old: set[str] = set()
        """The workloads that have an object of the older layout, as far as it was seen."""
        self._from_old: set[Key] = set()
        """The records that were given from there."""
        self._own: OrderedDict[StoreRevision, Commit] = OrderedDict()

    @property
    def guarantees(self) -> Guarantee:
        """What the store underneath promises."""
        return self._guarantees

    async def snapshot(self) -> Snapshot:
        """Every record at one revision."""
        revision: StoreRevision = 0
        records: dict[Key, Versioned[Record]] = {}
        unreadable: dict[Key, str] = {}
        old: list[KvEntry] = []
        async with aclosing(self._kv.pages(_PREFIXES)) as pages:
            async for page in pages:
                revision = page.revision
                for entry in page.entries:
                    if legacy_id(_path(entry.key)):
                        old.append(entry)
                    else:
                        self._add(entry, records, unreadable)
        for entry in old:
            self._add_old(entry, records, unreadable)
        quarantined = tuple(dict.fromkeys(unreadable.values()))
        return Snapshot(revision, records, quarantined, frozenset(unreadable))

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        """The named records as they stand now, all at one revision."""
        wanted = list(keys)
        read = await self._kv.get({place for key in wanted for place in places_of(key)})
        return {key: self._found(key, read.entries) for key in wanted}

    async def commit(self, commit: Commit) -> CommitResult:
        """Do all of ``commit`` or nothing; an outcome that was not told is found out.

        Raises CommitTooLargeError, StoreUnavailableError and, where even the reading back
        fails, AmbiguousCommitError.
        """
        check_commit(commit)
        txn = await self._txn(commit)
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
                    yield await self._batch(event)
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

    async def _txn(self, commit: Commit) -> Txn:
        found: Mapping[bytes, KvEntry] = {}
        if touched := touched_by(commit) & self._old:
            keys = (Key(kind, id_) for id_ in touched for kind in HALVES)
            found = (await self._kv.get({p for key in keys for p in places_of(key)})).entries
        puts = (write for write in commit.writes if isinstance(write, Put))
        values = {put.key: self._value(put, commit.token) for put in puts}
        txn = transaction_of(commit, values, found)
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
                    break
                result = await self._do(commit, txn)
                if isinstance(result, Committed):
                    return result
            except StoreUnavailableError as again:
                if loop.time() > until or isinstance(again, StoreFullError):
                    raise error from again
                await asyncio.sleep(pause)
                pause *= 2
        raise error

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
        self, entry: KvEntry, records: dict[Key, Versioned[Record]], unreadable: dict[Key, str]
    ) -> None:
        key = key_at(_path(entry.key))
        if key is None:
            return
        found = self._decoded(key, entry)
        if found is None:
            unreadable[key] = _path(entry.key)
        else:
            records[key] = found[0]

    def _add_old(
        self, entry: KvEntry, records: dict[Key, Versioned[Record]], unreadable: dict[Key, str]
    ) -> None:
        """An old object stands for what has no key of its own, readable or not."""
        for key, half in self._halves(entry).items():
            if key in records or key in unreadable:
                self._from_old.discard(key)
                continue
            found = self._decoded(key, half)
            if found is None:
                unreadable[key] = _path(entry.key)
            else:
                records[key] = found[0]

    def _halves(self, entry: KvEntry) -> Mapping[Key, KvEntry]:
        """What an old object stands for, by key; from now on it is known to be there."""
        id_ = legacy_id(_path(entry.key))
        self._old.add(id_)
        halves = {Key(kind, id_): half for kind, half in halves_in(entry).items()}
        self._from_old |= halves.keys()
        return halves

    def _found(self, key: Key, entries: Mapping[bytes, KvEntry]) -> Found:
        own, *others = places_of(key)
        entry = entries.get(own)
        old = entries.get(others[0]) if others else None
        if old is not None:
            halves = self._halves(old)
            if entry is None:
                entry = halves[key]
            else:
                self._from_old.discard(key)
        found = self._decoded(key, entry) if entry is not None else None
        return found[0] if found is not None else None

    def _decoded(self, key: Key, entry: KvEntry) -> tuple[Versioned[Record], str] | None:
        """The record and the token of its writer; ``None`` where it cannot be read."""
        try:
            decoded = decode(key, entry.value)
        except UnreadableRecordError as error:
            self._on_unreadable(_path(entry.key), error)
            return None
        if decoded.unknown:
            self._unknown[key] = decoded.unknown
        else:
            self._unknown.pop(key, None)
        return Versioned(decoded.record, entry.mod_revision, entry.create_revision), decoded.token

    async def _batch(self, batch: KvBatch) -> WatchBatch:
        own = self._own.get(batch.revision)
        writes = own.writes if own else ()
        values = {write.key: write.value for write in writes if isinstance(write, Put)}
        token = own.token if own else ""
        changes: list[Change] = []
        for change in await self._told(batch):
            key = key_at(_path(change.key))
            if key is None:
                continue
            seen = self._change(key, change, values.get(key))
            if seen is not None:
                changes.append(seen[0])
                token = token or seen[1]
        return WatchBatch(batch.revision, tuple(changes), token)

    async def _told(self, batch: KvBatch) -> list[KvChange]:
        """The changes, with those of old objects as changes of what these stand for."""
        told = [each for each in batch.changes if not legacy_id(_path(each.key))]
        keys = {key_at(_path(each.key)) for each in told}
        self._from_old -= keys
        for change in batch.changes:
            if id_ := legacy_id(_path(change.key)):
                told += await self._told_of_old(id_, change.entry, keys)
        return told

    async def _told_of_old(
        self, id_: str, entry: KvEntry | None, changed: Container[Key | None]
    ) -> list[KvChange]:
        mine = [key for key in (Key(kind, id_) for kind in HALVES) if key not in changed]
        if entry is None:
            self._old.discard(id_)
            gone = [key for key in mine if key in self._from_old]
            self._from_old.difference_update(gone)
            return [KvChange(as_bytes(path_of(key)), None) for key in gone]
        halves = self._halves(entry)
        others = await self._kv.get([as_bytes(path_of(key)) for key in mine])
        told = []
        for key in halves:
            path = as_bytes(path_of(key))
            if key in mine and path not in others.entries:
                told.append(KvChange(path, halves[key]))
            else:
                self._from_old.discard(key)
        return told

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

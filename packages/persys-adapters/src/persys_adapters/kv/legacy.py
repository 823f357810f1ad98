"""What a commit means where a workload still stands in the reference's older layout.

Decided here: which comparisons and writes keep compare-and-swap right there. A record that stands
in an old object has the object's revisions. Any write to it moves both halves to their own keys
and removes the object, in the same transaction; a delete removes the keys that go with the record.
Pure.

| expected | without an old object | it stands in the object | at its own key, beside it |
| --- | --- | --- | --- |
| revision r | own key = r | object = r, own key absent | own key = r |
| absent | own key absent, object absent | the same: refused | the same: refused |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve

from persys_adapters.kv.contract import Compare, KvEntry, Txn
from persys_adapters.records.layout import path_of
from persys_adapters.records.legacy import HALVES, halves_of, leftovers, legacy_path
from persys_core.ports.cluster_store import (
    MAX_COMMIT_OPERATIONS,
    Commit,
    CommitTooLargeError,
    Delete,
    Expectation,
    Key,
    Kind,
)

__all__ = ["as_bytes", "halves_in", "places_of", "touched_by", "transaction_of"]

Entries = Mapping[bytes, KvEntry]


def as_bytes(path: str) -> bytes:
    """The way from a path to the key in the store, exact for keys that are no UTF-8, too."""
    return path.encode(errors="surrogateescape")


def places_of(key: Key) -> tuple[bytes, ...]:
    """Where the record of ``key`` may stand, the one that wins first."""
    own = as_bytes(path_of(key))
    return (own, as_bytes(legacy_path(key.id))) if key.kind in HALVES else (own,)


def halves_in(entry: KvEntry) -> Mapping[Kind, KvEntry]:
    """An old object as the two entries that it stands for."""
    halves = halves_of(entry.value)
    return {kind: evolve(entry, value=halves.get(kind, entry.value)) for kind in HALVES}


def touched_by(commit: Commit) -> frozenset[str]:
    """The workloads whose records ``commit`` compares or writes."""
    keys = (*(each.key for each in commit.expects), *(each.key for each in commit.writes))
    return frozenset(key.id for key in keys if key.kind in HALVES)


def transaction_of(commit: Commit, values: Mapping[Key, bytes], found: Entries) -> Txn:
    """The transaction that ``commit`` is. ``values``: what its puts write; ``found``: the keys of
    those of its workloads that have an old object, as they were read a moment ago.

    Raises CommitTooLargeError where old layouts make it more than a transaction may hold.
    """
    compares = [each for wanted in commit.expects for each in _compared(wanted, found)]
    puts = [(as_bytes(path_of(key)), value) for key, value in values.items()]
    deletes = list(_deleted(commit))
    for id_ in sorted({write.key.id for write in commit.writes if write.key.kind in HALVES}):
        old = found.get(as_bytes(legacy_path(id_)))
        if old is None:
            continue
        moved = _moved(id_, old, commit, found)
        if moved is None:
            continue
        puts += moved
        compares += (Compare(key, mod_revision=0) for key, _ in moved)
        if not any(compare.key == old.key for compare in compares):
            compares.append(Compare(old.key, old.mod_revision))
        deletes.append(old.key)
    txn = Txn(_distinct(compares), tuple(puts), tuple(dict.fromkeys(deletes)))
    _check_size(commit, txn)
    return txn


def _compared(wanted: Expectation, found: Entries) -> Iterator[Compare]:
    own, *old = places_of(wanted.key)
    if not old:
        yield Compare(own, wanted.revision, wanted.create_revision)
    elif old[0] in found and own not in found:
        yield Compare(own, mod_revision=0)
        yield Compare(old[0], wanted.revision, wanted.create_revision)
    else:
        yield Compare(own, wanted.revision, wanted.create_revision)
        if 0 in (wanted.revision, wanted.create_revision):
            yield Compare(old[0], mod_revision=0)


def _deleted(commit: Commit) -> Iterator[bytes]:
    for write in commit.writes:
        if isinstance(write, Delete):
            yield from map(as_bytes, (path_of(write.key), *leftovers(write.key)))


def _moved(
    id_: str, old: KvEntry, commit: Commit, found: Entries
) -> list[tuple[bytes, bytes]] | None:
    """The halves of an old object that ``commit`` says nothing of, at their own keys; ``None``
    for an object that cannot be read, which stays."""
    written = {write.key for write in commit.writes}
    halves = halves_of(old.value)
    if not halves:
        return None
    keys = (Key(kind, id_) for kind in HALVES)
    silent = ((key, as_bytes(path_of(key))) for key in keys if key not in written)
    return [(path, halves[key.kind]) for key, path in silent if path not in found]


def _distinct(compares: Iterable[Compare]) -> tuple[Compare, ...]:
    return tuple(dict.fromkeys(compares))


def _check_size(commit: Commit, txn: Txn) -> None:
    size = max(len(txn.compares), len(txn.puts) + len(txn.deletes))
    if size > MAX_COMMIT_OPERATIONS:
        raise CommitTooLargeError(
            f"a commit of {len(commit.writes)} writes and {len(commit.expects)} expectations"
            f" becomes {len(txn.puts) + len(txn.deletes)} writes and {len(txn.compares)}"
            f" comparisons, since keys of older layouts count as well; at most"
            f" {MAX_COMMIT_OPERATIONS} of each are allowed: split it into several commits"
        )

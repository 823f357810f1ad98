"""The small transactional key-value contract that a ClusterStore can be built on.

Decided here: what such a store must promise, in bytes and revisions. It knows no records; what
stands at which key is decided in ``records``. Implemented by etcd, SQLite and, for tests, a dict.

Duties, beside those in the docstrings: revisions are those of one history, growing by one with
each transaction that changed something; a transaction is all or nothing. A backend that cannot
answer raises ``StoreUnavailableError``; one that failed in the middle of a transaction, so that
nobody knows, ``AmbiguousCommitError``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from attrs import field, frozen

from persys_core.model.ids import StoreRevision

__all__ = [
    "Applied",
    "Compacted",
    "Compare",
    "Kv",
    "KvBatch",
    "KvChange",
    "KvEntry",
    "KvEvent",
    "KvRead",
    "Page",
    "Refused",
    "Txn",
    "TxnResult",
    "holds",
]


@frozen
class KvEntry:
    """A value with the revisions of its last change and of its key's creation."""

    key: bytes
    value: bytes
    mod_revision: StoreRevision
    create_revision: StoreRevision


@frozen
class KvRead:
    """The asked keys at one revision; an absent one is not in ``entries``."""

    revision: StoreRevision
    entries: Mapping[bytes, KvEntry]


@frozen
class Page:
    """A part of a listing; all pages of one listing have the same revision."""

    revision: StoreRevision
    entries: Sequence[KvEntry]


@frozen
class Compare:
    """What must hold of a key; exactly one is set, 0 means that the key does not exist."""

    key: bytes
    mod_revision: StoreRevision | None = None
    create_revision: StoreRevision | None = None


@frozen
class Txn:
    """If all of ``compares`` hold, do all of ``puts`` and ``deletes``; no key is written twice."""

    compares: tuple[Compare, ...] = ()
    puts: tuple[tuple[bytes, bytes], ...] = ()
    deletes: tuple[bytes, ...] = ()


@frozen
class Applied:
    """The transaction was done; ``revision`` is the store's, a new one where it ``changed``."""

    revision: StoreRevision
    changed: bool = True


@frozen
class Refused:
    """A comparison did not hold; the compared keys as they stood, absent ones left out."""

    revision: StoreRevision
    entries: Mapping[bytes, KvEntry] = field(factory=dict)


TxnResult: TypeAlias = Applied | Refused


@frozen
class KvChange:
    """One key's change; ``entry`` is ``None`` where it was removed."""

    key: bytes
    entry: KvEntry | None


@frozen
class KvBatch:
    """All changes of one revision, under the watched prefixes."""

    revision: StoreRevision
    changes: tuple[KvChange, ...]


@frozen
class Compacted:
    """The asked past is gone, or was never reached: list again. The watch ends after this."""


KvEvent: TypeAlias = KvBatch | Compacted


class Kv(Protocol):
    """See the module's docstring."""

    async def get(self, keys: Iterable[bytes]) -> KvRead:
        """The named keys, all at one revision."""
        ...

    def pages(self, prefixes: Sequence[bytes]) -> AsyncGenerator[Page, None]:
        """Every key under ``prefixes``, all at one revision; at least one page, maybe empty."""
        ...

    async def txn(self, txn: Txn) -> TxnResult:
        """Do all of ``txn`` or nothing. An effect-free one moves no revision."""
        ...

    def watch(
        self, prefixes: Sequence[bytes], after: StoreRevision
    ) -> AsyncGenerator[KvEvent, None]:
        """Each change after ``after``, once, in order; resumes by itself after a lost line."""
        ...

    async def revision(self) -> StoreRevision:
        """The present revision; also the proof that the backend answers."""
        ...


def holds(compare: Compare, entry: KvEntry | None) -> bool:
    """Whether a key that stands as ``entry`` (``None``: absent) is what ``compare`` wants."""
    if compare.mod_revision is not None:
        return compare.mod_revision == (entry.mod_revision if entry else 0)
    return compare.create_revision == (entry.create_revision if entry else 0)

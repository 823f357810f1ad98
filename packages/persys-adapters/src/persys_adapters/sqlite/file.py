"""The database file: its tables, and every statement that is run on them.

Everything here is synchronous and is called from one thread (``thread``). Decided here: how a
group of transactions becomes one of SQLite, each with a revision of its own, and how long changes
are kept for watchers. Nothing is acknowledged by this module before SQLite has written it to disk
(``synchronous=FULL``).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from persys_adapters.kv.contract import (
    Applied,
    Compare,
    KvBatch,
    KvChange,
    KvEntry,
    KvRead,
    Page,
    Refused,
    Txn,
    TxnResult,
    holds,
)
from persys_adapters.sqlite.damage import check
from persys_adapters.sqlite.errors import is_undecided, unavailable
from persys_adapters.sqlite.lock import FileLock
from persys_adapters.sqlite.private import make_private_file, make_private_folder
from persys_core.model.ids import StoreRevision
from persys_core.ports.cluster_store import AmbiguousCommitError, StoreUnavailableError

__all__ = ["Connect", "Listing", "SqliteFile"]

Connect: TypeAlias = Callable[[Path], sqlite3.Connection]

HISTORY = 10_000
"""How many revisions are kept for watchers."""

APPLICATION_ID = 0x50455253
FORMAT_VERSION = 1
WATCH_REVISIONS = 200
PAGE_ENTRIES = 1000
BUSY_MILLISECONDS = 2000

_TABLES = """
CREATE TABLE state (only INTEGER PRIMARY KEY CHECK (only = 0), revision INTEGER, compacted INTEGER);
INSERT INTO state VALUES (0, 0, 0);
CREATE TABLE entries (
    key BLOB PRIMARY KEY, value BLOB NOT NULL, mod_revision INTEGER NOT NULL,
    create_revision INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE changes (
    revision INTEGER, position INTEGER, key BLOB NOT NULL, value BLOB, create_revision INTEGER,
    PRIMARY KEY (revision, position)
) WITHOUT ROWID;
"""
_SELECT_ENTRY = "SELECT key, value, mod_revision, create_revision FROM entries"


def connect(path: Path) -> sqlite3.Connection:
    """A connection that begins no transaction by itself."""
    return sqlite3.connect(path, isolation_level=None)


class SqliteFile:
    """An open database file, locked for this process.

    ``connect`` is replaced by tests that make SQLite fail. All methods raise
    StoreUnavailableError; ``apply`` also AmbiguousCommitError, after which nothing works any more
    until the file is opened again.
    """

    def __init__(self, path: Path, history: int = HISTORY, connect: Connect = connect) -> None:
        self._path = path
        self._history = history
        self._connect = connect
        self._broken = ""
        with _translated(path):
            make_private_folder(path.parent)
            self._lock = FileLock(path)
            try:
                make_private_file(path)
                self._connection = self._opened()
                self._identity = _identity(path)
                self._revision, self._compacted = self._state(self._connection)
            except BaseException:
                self._lock.release()
                raise

    @property
    def revision(self) -> StoreRevision:
        """The revision of the last change. Raises where the file was taken away."""
        self._check()
        return self._revision

    def close(self) -> None:
        """Close the file and let another process have it."""
        try:
            with _translated(self._path):
                self._connection.close()
        finally:
            self._lock.release()

    def get(self, keys: Iterable[bytes]) -> KvRead:
        """The named keys as they stand now."""
        self._check()
        with _translated(self._path):
            found = {key: entry for key in keys if (entry := self._entry(key)) is not None}
        return KvRead(self._revision, found)

    def listing(self, prefixes: Sequence[bytes]) -> Listing:
        """A listing at the present revision, whatever is committed while it is read."""
        self._check()
        with _translated(self._path):
            connection = self._connect(self._path)
            connection.execute("BEGIN")
            revision, _ = self._state(connection)
        return Listing(self._path, connection, revision, prefixes)

    def apply(self, txns: Sequence[Txn]) -> list[TxnResult]:
        """Do the transactions one after the other and write all of them to disk at once."""
        self._check()
        revision = self._revision
        results: list[TxnResult] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for txn in txns:
                result = self._apply_one(txn, revision)
                revision = result.revision
                results.append(result)
            if revision != self._revision:
                self._advance(revision)
        except sqlite3.Error as error:
            self._roll_back()
            raise unavailable(self._path, error) from error
        self._commit()
        self._revision = revision
        self._compacted = max(self._compacted, revision - self._history)
        return results

    def changes_after(self, revision: StoreRevision) -> list[KvBatch] | None:
        """Some of the changes after ``revision``, oldest first; ``None`` where they are gone."""
        self._check()
        if not self._compacted <= revision <= self._revision:
            return None
        with _translated(self._path):
            rows = self._connection.execute(
                "SELECT revision, key, value, create_revision FROM changes"
                " WHERE revision > ? AND revision <= ? ORDER BY revision, position",
                (revision, revision + WATCH_REVISIONS),
            ).fetchall()
        return [
            KvBatch(number, tuple(_change(*row) for row in group))
            for number, group in groupby(rows, key=lambda row: row[0])
        ]

    def compact(self) -> None:
        """Forget every change up to now."""
        self._check()
        with _translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            self._forget(self._revision)
            self._connection.execute("COMMIT")
        self._compacted = self._revision

    def _opened(self) -> sqlite3.Connection:
        connection = self._connect(self._path)
        try:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
            self._make_tables(connection)
            check(self._path, connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            connection.executescript(
                f"BEGIN; {_TABLES} PRAGMA application_id = {APPLICATION_ID};"
                f" PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
            )
        elif application != APPLICATION_ID:
            raise StoreUnavailableError(
                f"{self._path} is a SQLite database of another program: name another file"
            )
        elif version > FORMAT_VERSION:
            raise StoreUnavailableError(
                f"{self._path} has format {version}, written by a newer release; this one reads "
                f"up to {FORMAT_VERSION}: use the newer release, or restore an older backup"
            )

    def _state(self, connection: sqlite3.Connection) -> tuple[StoreRevision, StoreRevision]:
        revision, compacted = connection.execute("SELECT revision, compacted FROM state").fetchone()
        return revision, compacted

    def _check(self) -> None:
        if self._broken:
            raise StoreUnavailableError(self._broken)
        if _identity(self._path) != self._identity:
            raise StoreUnavailableError(
                f"the store {self._path} was removed or replaced while it was in use; nothing is "
                f"read or written any more: put the file back, or start again"
            )

    def _entry(self, key: bytes) -> KvEntry | None:
        row = self._connection.execute(f"{_SELECT_ENTRY} WHERE key = ?", (key,)).fetchone()
        return KvEntry(*row) if row is not None else None

    def _apply_one(self, txn: Txn, revision: StoreRevision) -> TxnResult:
        if not all(holds(compare, self._entry(compare.key)) for compare in txn.compares):
            return Refused(revision, self._compared(txn.compares))
        changes = [self._put(key, value, revision + 1) for key, value in txn.puts]
        changes += filter(None, map(self._delete, txn.deletes))
        if not changes:
            return Applied(revision, changed=False)
        self._connection.executemany(
            "INSERT INTO changes VALUES (?, ?, ?, ?, ?)",
            [_change_row(revision + 1, *numbered) for numbered in enumerate(changes)],
        )
        return Applied(revision + 1)

    def _compared(self, compares: Sequence[Compare]) -> dict[bytes, KvEntry]:
        entries = map(self._entry, {compare.key for compare in compares})
        return {entry.key: entry for entry in entries if entry is not None}

    def _put(self, key: bytes, value: bytes, revision: StoreRevision) -> KvChange:
        (created,) = self._connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET value = excluded.value, mod_revision = excluded.mod_revision"
            " RETURNING create_revision",
            (key, value, revision, revision),
        ).fetchone()
        return KvChange(key, KvEntry(key, value, revision, created))

    def _delete(self, key: bytes) -> KvChange | None:
        cursor = self._connection.execute("DELETE FROM entries WHERE key = ?", (key,))
        return KvChange(key, None) if cursor.rowcount else None

    def _advance(self, revision: StoreRevision) -> None:
        self._connection.execute("UPDATE state SET revision = ?", (revision,))
        if revision > self._history:
            self._forget(revision - self._history)

    def _forget(self, revision: StoreRevision) -> None:
        self._connection.execute("DELETE FROM changes WHERE revision <= ?", (revision,))
        self._connection.execute("UPDATE state SET compacted = max(compacted, ?)", (revision,))

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if is_undecided(error):
                self._broken = str(unavailable(self._path, error))
                raise AmbiguousCommitError(self._broken) from error
            raise unavailable(self._path, error) from error

    def _roll_back(self) -> None:
        """After some errors SQLite has rolled back by itself."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


class Listing:
    """All entries under some prefixes at one revision, read page by page."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        revision: StoreRevision,
        prefixes: Sequence[bytes],
    ) -> None:
        self._path = path
        self._connection = connection
        self._revision = revision
        self._rows = self._select(prefixes)

    def next_page(self) -> Page | None:
        """The next entries; ``None`` at the end, an empty page never but as the first one."""
        with _translated(self._path):
            return next(self._rows, None)

    def close(self) -> None:
        """End the reading."""
        self._rows.close()
        self._connection.close()

    def _select(self, prefixes: Sequence[bytes]) -> Generator[Page, None, None]:
        yield Page(self._revision, ())
        for prefix in prefixes:
            with closing(
                self._connection.execute(
                    f"{_SELECT_ENTRY} WHERE key >= ? AND key < ? ORDER BY key",
                    (prefix, _end_of(prefix)),
                )
            ) as cursor:
                while rows := cursor.fetchmany(PAGE_ENTRIES):
                    yield Page(self._revision, [KvEntry(*row) for row in rows])


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    except OSError as error:
        raise StoreUnavailableError(
            f"the store {path} cannot be used ({error.strerror}): check that its folder is there "
            f"and may be written to, or name another one (PERSYS_DATA_DIR, PERSYS_STORE)"
        ) from error


def _end_of(prefix: bytes) -> bytes:
    """The first key after all keys that begin with ``prefix``, which ends below 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at ``path``; SQLite would go on writing to one that was removed."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _change(
    revision: StoreRevision, key: bytes, value: bytes | None, created: StoreRevision | None
) -> KvChange:
    if value is None or created is None:
        return KvChange(key, None)
    return KvChange(key, KvEntry(key, value, revision, created))


def _change_row(
    revision: StoreRevision, position: int, change: KvChange
) -> tuple[StoreRevision, int, bytes, bytes | None, StoreRevision | None]:
    entry = change.entry
    if entry is None:
        return revision, position, change.key, None, None
    return revision, position, change.key, entry.value, entry.create_revision

"""``StateFile``: the SQLite file, in the hands of one thread.

Decided here: the schema and its version, what makes a file unusable, and that an unusable one is
never touched: neither a newer version's nor a damaged one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from attrs import frozen

from persys_agent.state.codec import Row, task_from, task_row, workload_from, workload_row
from persys_agent.state.lock import StateError, StateLock
from persys_agent.state.records import Task, Workload
from persys_core.model.ids import WorkloadId

__all__ = ["Contents", "StateFile"]

_VERSION = 1
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE workloads (
    id TEXT PRIMARY KEY, type TEXT NOT NULL, revision_id TEXT NOT NULL, spec_hash TEXT NOT NULL,
    desired_state TEXT NOT NULL, request TEXT NOT NULL, requested TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, is_settled INTEGER NOT NULL,
    has_ended INTEGER NOT NULL, delete_volumes INTEGER NOT NULL, attached TEXT NOT NULL,
    condition TEXT, state TEXT, state_since TEXT
) STRICT;
CREATE TABLE tasks (
    serial INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, workload_id TEXT NOT NULL,
    created_at TEXT NOT NULL, request TEXT NOT NULL, revision_id TEXT NOT NULL,
    delete_volumes INTEGER NOT NULL, state TEXT NOT NULL, error TEXT NOT NULL,
    started_at TEXT, ended_at TEXT
) STRICT;
"""

_TABLES = frozenset(("meta", "workloads", "tasks"))

_WHOLE = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_PART = ("SAVEPOINT part", "RELEASE part", ("ROLLBACK TO part", "RELEASE part"))

T = TypeVar("T")


@frozen
class Contents:
    """Everything in the file, in order of ids and serials."""

    workloads: tuple[Workload, ...]
    tasks: tuple[Task, ...]
    meta: dict[str, str]


class StateFile:
    """Opens ``path`` (made if missing, readable by its owner only) and holds its lock.

    Raises ``StateError`` where another process has it, where it is damaged, or where a newer agent
    wrote it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = StateLock(path)
        except OSError as error:
            raise StateError(
                f"the state {path} cannot be kept: {error.filename}: {error.strerror}; set"
                " agent_data_dir to a folder that this user may write, or state_store_path"
            ) from error
        try:
            self._connection = _connected(path)
            self._guarded(self._migrate)
        except BaseException:
            self._lock.release()
            raise

    def load(self) -> Contents:
        """Everything that is in it. Raises ``StateError`` where a record makes no sense."""
        return self._guarded(self._contents)

    def save(
        self,
        *,
        workloads: Sequence[Workload] = (),
        tasks: Sequence[Task] = (),
        meta: Sequence[tuple[str, str]] = (),
        without: Sequence[WorkloadId] = (),
        without_tasks: Sequence[int] = (),
    ) -> None:
        """Write records and remove others, all or nothing, and on disk when it returns."""

        def write() -> None:
            with self._all_or_nothing() as transaction:
                _put(transaction, "workloads", map(workload_row, workloads))
                _put(transaction, "tasks", map(task_row, tasks))
                _put(transaction, "meta", ({"key": key, "value": value} for key, value in meta))
                _remove(transaction, "workloads", "id", without)
                _remove(transaction, "tasks", "serial", without_tasks)

        self._guarded(write)

    def together(self, works: Sequence[Callable[[StateFile], T]]) -> list[T | Exception]:
        """The results of several works, or what they raised, with one wait for the disk: when this
        returns, all that is no exception is on it."""
        results: list[T | Exception] = []
        try:
            with self._all_or_nothing():
                for work in works:
                    try:
                        results.append(work(self))
                    except Exception as error:
                        results.append(error)
        except sqlite3.DatabaseError as error:
            return [StateError(f"the state {self._path} cannot be used: {error}") for _ in works]
        return results

    def close(self) -> None:
        """Let go of the file and its lock."""
        self._connection.close()
        self._lock.release()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, or inside of one a part of it that fails alone."""
        connection = self._connection
        is_part = connection.in_transaction
        begin, end, undo = _PART if is_part else _WHOLE
        connection.execute(begin)
        try:
            yield connection
            connection.execute(end)
        except BaseException:
            for statement in undo:
                if connection.in_transaction:
                    connection.execute(statement)
            raise

    def _migrate(self) -> None:
        version = int(self._connection.execute("PRAGMA user_version").fetchone()["user_version"])
        if version > _VERSION:
            raise StateError(
                f"the state {self._path} was written by a newer agent (version {version}, this one"
                f" knows {_VERSION}): run that agent, or give this one a state of its own"
            )
        if version == 0:
            self._connection.executescript(
                f"BEGIN;{_SCHEMA}PRAGMA user_version = {_VERSION};COMMIT;"
            )

    def _contents(self) -> Contents:
        return Contents(
            tuple(workload_from(row) for row in self._rows("workloads", "id")),
            tuple(task_from(row) for row in self._rows("tasks", "serial")),
            {str(row["key"]): str(row["value"]) for row in self._rows("meta", "key")},
        )

    def _rows(self, table: str, order: str) -> Iterable[dict[str, object]]:
        return self._connection.execute(f"SELECT * FROM {table} ORDER BY {order}")

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.DatabaseError as error:
            raise StateError(f"the state {self._path} cannot be used: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the state {self._path} holds a record that makes no sense ({error}); it is left"
                " as it is: move it away to begin without it"
            ) from error


def _connected(path: Path) -> sqlite3.Connection:
    connection: sqlite3.Connection | None = None
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.row_factory = _named
        _refuse_foreign(connection, path)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 5000"):
            connection.execute(f"PRAGMA {pragma}")
    except (sqlite3.DatabaseError, OSError) as error:
        if connection is not None:
            connection.close()
        raise StateError(
            f"the state {path} is no usable database ({error}); it is left as it is: move it away"
            " to begin without it"
        ) from error
    return connection


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    """Raises ``StateError`` for a database that has tables and none of ours; nothing is written."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    names = {str(row["name"]) for row in found}
    if names and names.isdisjoint(_TABLES):
        connection.close()
        raise StateError(
            f"the state {path} is a database of another program (it has"
            f" {', '.join(sorted(names))}); it is left as it is: give this agent a"
            " state of its own (state_store_path)"
        )


def _named(cursor: sqlite3.Cursor, row: tuple[object, ...]) -> dict[str, object]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _put(transaction: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    for row in rows:
        names = ", ".join(row)
        places = ", ".join(f":{name}" for name in row)
        transaction.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({places})", row)


def _remove(
    transaction: sqlite3.Connection, table: str, key: str, values: Sequence[str | int]
) -> None:
    transaction.executemany(f"DELETE FROM {table} WHERE {key} = ?", [(value,) for value in values])

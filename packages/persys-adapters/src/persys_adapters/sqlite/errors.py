"""What went wrong with a SQLite file, in words for whoever runs the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from persys_core.ports.cluster_store import StoreUnavailableError

__all__ = ["damaged", "is_undecided", "unavailable"]

_DAMAGED = (
    "it is damaged, so restore a backup: stop the server, move FILE and its -wal and -shm files to "
    "a safe place, copy the backup to FILE and start again; without a backup, save what can be "
    "read with `sqlite3 FILE .recover`"
)

_ADVICE: tuple[tuple[str, str], ...] = (
    (
        "SQLITE_FULL",
        "no space is left for it: free some on its disk; writing goes on by itself then",
    ),
    (
        "SQLITE_NOTADB",
        "it is no SQLite database: name another file, or move it away to begin anew",
    ),
    (
        "SQLITE_CORRUPT",
        _DAMAGED,
    ),
    ("SQLITE_READONLY", "it may not be written to: check its owner and mode and its disk's"),
    ("SQLITE_PERM", "it may not be written to: check its owner and mode and its folder's"),
    ("SQLITE_CANTOPEN", "it cannot be opened: check that its folder is there and may be written"),
    ("SQLITE_BUSY", "another program holds it locked: end that program's transaction"),
    ("SQLITE_LOCKED", "another program holds it locked: end that program's transaction"),
    ("SQLITE_IOERR", "its disk failed: check the disk and the system's log, then start again"),
)
_OTHERWISE = "an unexpected error of SQLite"


def unavailable(path: Path, error: sqlite3.Error) -> StoreUnavailableError:
    """The error that callers of the store get for one of SQLite."""
    name = _name(error)
    advice = next((text for prefix, text in _ADVICE if name.startswith(prefix)), _OTHERWISE)
    return StoreUnavailableError(
        f"the store {path} cannot be used ({name or 'no code'}: {error}):"
        f" {advice.replace('FILE', str(path))}"
    )


def damaged(path: Path, found: str) -> StoreUnavailableError:
    """The error for a file whose check found something."""
    advice = _DAMAGED.replace("FILE", str(path))
    return StoreUnavailableError(f"the store {path} cannot be used ({found}): {advice}")


def is_undecided(error: sqlite3.Error) -> bool:
    """Whether a commit that ended with ``error`` may still be found done after a crash."""
    return _name(error).startswith("SQLITE_IOERR")


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""

"""Whether a database file is whole, asked of SQLite itself.

Decided here: the cheap form of the question (``quick_check``: every page is read, indexes are not
compared), and how a file is looked at without changing anything beside it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from persys_adapters.sqlite.errors import damaged, unavailable
from persys_core.ports.cluster_store import StoreUnavailableError

__all__ = ["check", "problem_of"]

BUSY_SECONDS = 2.0
_SHOWN_LENGTH = 200


def check(path: Path, connection: sqlite3.Connection) -> None:
    """Raise StoreUnavailableError where the file behind ``connection`` is damaged."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise damaged(path, " ".join(found.replace("*", "").split())[:_SHOWN_LENGTH])


def problem_of(path: Path) -> str:
    """What is wrong with the file at ``path``, empty for nothing; a server may be using it."""
    try:
        with closing(_looking_only(path)) as connection:
            check(path, connection)
    except sqlite3.Error as error:
        return str(unavailable(path, error))
    except StoreUnavailableError as error:
        return str(error)
    return ""


def _looking_only(path: Path) -> sqlite3.Connection:
    """Reading a file with a write-ahead log makes files beside it, unless it is called immutable.

    It is not where that log holds something: a server runs, or one ended without closing it.
    """
    log = Path(f"{path}-wal")
    how = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=BUSY_SECONDS)

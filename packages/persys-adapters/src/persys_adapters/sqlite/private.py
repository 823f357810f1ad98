"""Files and folders that only their owner may read: the database holds secrets of workloads.

Decided here: the modes. What exists and is more open is closed where that is permitted; where it
is not, the doctor says so.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["is_open_to_others", "make_private_file", "make_private_folder"]

_FILE = 0o600
_FOLDER = 0o700
_OTHERS = 0o077
_COMPANIONS = ("", "-wal", "-shm")


def make_private_folder(folder: Path) -> None:
    """Make ``folder`` and what is missing above it; folders that exist stay as they are."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=_FOLDER, exist_ok=True)
    folder.mkdir(exist_ok=True)


def make_private_file(path: Path) -> None:
    """Make ``path`` if it is not there, and close it and its -wal and -shm files to others.

    SQLite gives the files that it makes beside a database the mode of the database.
    """
    with suppress(FileExistsError, IsADirectoryError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE))
    for companion in _COMPANIONS:
        place = Path(f"{path}{companion}")
        # Whoever does not own the file may not change its mode, and may still use it.
        with suppress(FileNotFoundError, PermissionError):
            if place.is_file() and is_open_to_others(place):
                place.chmod(_FILE)


def is_open_to_others(path: Path) -> bool:
    """Whether anyone but the owner may do something with the file at ``path``."""
    return bool(stat.S_IMODE(path.stat().st_mode) & _OTHERS)

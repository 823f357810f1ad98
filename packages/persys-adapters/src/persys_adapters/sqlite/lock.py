"""One process per database file: a lock beside it that the kernel drops with the process.

Decided here: who may open the file. SQLite's own locks are not used for that, since they are held
only during a transaction.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from persys_core.ports.cluster_store import StoreUnavailableError

__all__ = ["FileLock"]


class FileLock:
    """Holds ``<path>.lock`` from construction to ``release``; the file says who holds it.

    Raises StoreUnavailableError that names the holder's process id.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreUnavailableError(
                f"the store {path} is in use by process {holder}: stop that process, or give this "
                f"one a file of its own (PERSYS_STORE=sqlite:PATH)"
            ) from error
        os.truncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another process have the file."""
        os.close(self._file)

"""One agent per state file: a lock beside it that the kernel drops with the process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from persys_core.model.errors import PersysError

__all__ = ["StateError", "StateLock", "is_held"]

_LOCKS = Path("/proc/locks")


class StateError(PersysError):
    """The state file cannot be used; the text says why and what to do. It is left as it is."""


def is_held(path: Path) -> bool:
    """Whether a process has the state ``path``. The lock is not touched, or an agent that starts at
    this moment would find it taken."""
    try:
        inode = os.stat(f"{path}.lock").st_ino
        locks = _LOCKS.read_text(encoding="ascii")
    except OSError:
        return False
    fields = (line.split() for line in locks.splitlines())
    # The device is left out: some file systems show another one there than ``stat`` does.
    return any("FLOCK" in each and each[-3].rpartition(":")[2] == str(inode) for each in fields)


class StateLock:
    """Holds ``<path>.lock`` until ``release``; raises ``StateError`` that names the holder."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StateError(
                f"the state {path} is in use by process {holder}: stop that agent, or give this"
                " one a state of its own"
            ) from error
        os.truncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another process have the file."""
        os.close(self._file)

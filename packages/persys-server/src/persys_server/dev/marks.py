"""The mark of one demonstration on all that it makes, and whether the one of a mark still runs.

Decided here: a mark tells the machine, its boot, the process and when that began. So the next
demonstration can remove what a killed one left, and never what a running one has. Where that cannot
be known, as for a process of another machine or container, nothing is removed.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

from attrs import frozen

__all__ = ["Mark", "own_mark", "parsed_mark"]

_PREFIX = "persys-demo"
_PARTS = 6
_START_FIELD = 19
"""Of /proc/<pid>/stat, counted from behind the name of the program."""


@frozen
class Mark:
    """``text`` is the cluster's id in the labels of containers."""

    machine: str
    boot: str
    space: str
    pid: int
    began: str

    @property
    def text(self) -> str:
        """As one word that may be a label's value."""
        return ".".join((_PREFIX, self.machine, self.boot, self.space, str(self.pid), self.began))

    def is_over(self, here: Mark) -> bool:
        """Whether its process has certainly ended, as seen from the process of ``here``."""
        if self.machine != here.machine:
            return False
        if self.boot != here.boot:
            return True
        return self.space == here.space and _began(self.pid) != self.began


def own_mark() -> Mark:
    """This process's."""
    boot = _read("/proc/sys/kernel/random/boot_id")
    machine = f"{_read('/etc/machine-id')} {socket.gethostname()}"
    pid = os.getpid()
    return Mark(_short(machine), _short(boot), _short(_space()), pid, _began(pid))


def parsed_mark(text: str) -> Mark | None:
    """The mark that a label's value is; ``None`` for anything else."""
    parts = text.split(".")
    if len(parts) != _PARTS or parts[0] != _PREFIX or not parts[4].isdecimal():
        return None
    return Mark(parts[1], parts[2], parts[3], int(parts[4]), parts[5])


def _began(pid: int) -> str:
    """When a process began, in ticks since boot; ``gone`` where there is none."""
    stat = _read(f"/proc/{pid}/stat")
    return stat.rpartition(")")[2].split()[_START_FIELD] if stat else "gone"


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]

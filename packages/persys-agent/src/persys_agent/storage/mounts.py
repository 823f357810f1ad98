"""What is mounted, from the kernel's own list.

Decided here: ``/proc/self/mountinfo`` is the truth for *mounted or not*; nothing that we remember
is. Pure, apart from ``LinuxKernel``, which reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from attrs import frozen

__all__ = ["Kernel", "LinuxKernel", "Mount", "mount_at", "mounts_below", "parse_mountinfo"]

_OCTAL = re.compile(r"\\([0-7]{3})")
_SEPARATOR = "-"
_LEAST_FIELDS = 6


@frozen
class Mount:
    """One line of the list. ``root`` is the folder of the file system that is seen at ``point``."""

    point: str
    fs_type: str
    source: str
    root: str = "/"
    options: tuple[str, ...] = ()

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written through this mount."""
        return "ro" in self.options


class Kernel(Protocol):
    """What drivers ask the kernel, without changing anything."""

    def mounts(self) -> Sequence[Mount]:
        """All mounts, in the order in which they were made."""
        ...

    def knows_filesystem(self, name: str) -> bool:
        """Whether the file system is there without loading a module."""
        ...

    def has_bus(self, name: str) -> bool:
        """Whether devices of this bus can be there (``rbd``)."""
        ...

    def is_root(self) -> bool:
        """Whether this process may mount."""
        ...


class LinuxKernel:
    """The kernel that this process runs on."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc = proc
        self._sys = sys

    def mounts(self) -> Sequence[Mount]:
        """See ``Kernel``."""
        # Never in locale's or UTF-8's strictness: a mount point may hold any byte.
        text = (self._proc / "self" / "mountinfo").read_bytes()
        return tuple(parse_mountinfo(os.fsdecode(text)))

    def knows_filesystem(self, name: str) -> bool:
        """See ``Kernel``."""
        lines = (self._proc / "filesystems").read_text(encoding="ascii").splitlines()
        return name in {line.split()[-1] for line in lines if line.split()}

    def has_bus(self, name: str) -> bool:
        """See ``Kernel``."""
        return (self._sys / "bus" / name).is_dir()

    def is_root(self) -> bool:
        """See ``Kernel``."""
        return os.geteuid() == 0


def parse_mountinfo(text: str) -> Iterator[Mount]:
    """The mounts of the file's text (proc_pid_mountinfo(5)). Lines that are none are left out.

    Before the lone ``-`` stand any number of optional fields; blanks, line ends and backslashes in
    paths are written in octal.
    """
    for line in text.split("\n"):
        fields = line.split(" ")
        if _SEPARATOR not in fields[_LEAST_FIELDS:]:
            continue
        behind = fields[fields.index(_SEPARATOR, _LEAST_FIELDS) + 1 :]
        if len(behind) < 2:
            continue
        yield Mount(
            point=_unescaped(fields[4]),
            fs_type=_unescaped(behind[0]),
            source=_unescaped(behind[1]),
            root=_unescaped(fields[3]),
            options=tuple(fields[5].split(",")),
        )


def mount_at(mounts: Sequence[Mount], path: str) -> Mount | None:
    """What is seen at ``path``: of several mounts on one another the last."""
    return next((each for each in reversed(mounts) if each.point == path), None)


def mounts_below(mounts: Sequence[Mount], path: str) -> tuple[Mount, ...]:
    """What is mounted at ``path`` or inside of it."""
    prefix = path.rstrip("/") + "/"
    return tuple(each for each in mounts if each.point == path or each.point.startswith(prefix))


def _unescaped(text: str) -> str:
    """Bytes and not characters are written in octal, but only of ASCII."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)

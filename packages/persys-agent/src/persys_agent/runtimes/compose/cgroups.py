"""A group of processes above the containers of an application, in the kernel's own tree.

Decided here: which files say how much the group may have, in both versions of cgroups, and in which
order they are written. A group is made empty, gets its limits, and goes by ``rmdir``, so one that
somebody's processes are in stays. All of it blocks, and raises ``OSError``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from persys_core.model.resources import CPU, MEMORY, Resources

__all__ = ["BASE", "CGROUPS", "CgroupTree"]

CGROUPS = Path("/sys/fs/cgroup")
"""Where the kernel's tree is on every host with systemd, and on most others."""
BASE = "persys"
"""The group that those of all applications are in."""
_CONTROLLERS = ("cpu", "memory")
_PERIOD_MICROSECONDS = 100_000
_MICROSECONDS_PER_MILLICORE = _PERIOD_MICROSECONDS // 1000
_LEAST_MICROSECONDS = 1000
_BYTES_PER_MB = 1024 * 1024


class CgroupTree:
    """What is mounted at ``root``: one tree (version 2), or one for each controller (version 1)."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def version(self) -> str:
        """As the Engine says it."""
        return "2" if (self._root / "cgroup.controllers").exists() else "1"

    def problem(self) -> str:
        """Why no group can be made here; empty where it can. Nothing is made by asking."""
        if self.version == "2":
            known = (self._root / "cgroup.controllers").read_text().split()
            missing, tops = sorted(set(_CONTROLLERS) - set(known)), [self._root]
        else:
            tops = [self._root / each for each in _CONTROLLERS]
            missing = [each.name for each in tops if not each.is_dir()]
        if missing:
            return f"{self._root} has no controller {' and '.join(missing)}"
        closed = [str(each) for each in tops if not os.access(each, os.W_OK)]
        return f"{' and '.join(closed)} may not be written by this user" if closed else ""

    def make(self, name: str) -> None:
        """Have the group ``name``, which limits can be written to."""
        if self.version == "2":
            (self._root / BASE).mkdir(exist_ok=True)
            _hand_down(self._root)
            _hand_down(self._root / BASE)
        else:
            for controller in _CONTROLLERS:
                (self._root / controller / BASE).mkdir(exist_ok=True)
            _count_what_is_below(self._root / "memory" / BASE)
        for folder in self._folders(name):
            folder.mkdir(exist_ok=True)

    def limit(self, name: str, asked: Resources) -> None:
        """Let the group have no more than ``asked``; what is not asked for is not limited."""
        self.make(name)
        memory = asked.get(MEMORY) * _BYTES_PER_MB
        quota = asked.get(CPU) * _MICROSECONDS_PER_MILLICORE
        quota = max(_LEAST_MICROSECONDS, quota) if quota else 0
        if self.version == "2":
            folder = self._root / BASE / name
            _write(folder / "memory.max", str(memory or "max"))
            if (folder / "memory.swap.max").exists():  # not where the kernel counts no swap
                _write(folder / "memory.swap.max", "0" if memory else "max")
            _write(folder / "cpu.max", f"{quota or 'max'} {_PERIOD_MICROSECONDS}")
            return
        _limit_memory_v1(self._root / "memory" / BASE / name, str(memory or -1))
        folder = self._root / "cpu" / BASE / name
        _write(folder / "cpu.cfs_period_us", str(_PERIOD_MICROSECONDS))
        _write(folder / "cpu.cfs_quota_us", str(quota or -1))

    def remove(self, name: str) -> bool:
        """Remove the group in every tree (the runtime makes it in all of them); whether it is gone.
        Somebody's group of the same name with something in it stays."""
        for folder in self._everywhere(name):
            with suppress(OSError):
                folder.rmdir()
        return not self.has(name)

    def has(self, name: str) -> bool:
        """Whether the group is in any tree."""
        return next(self._everywhere(name), None) is not None

    def _folders(self, name: str) -> list[Path]:
        if self.version == "2":
            return [self._root / BASE / name]
        return [self._root / controller / BASE / name for controller in _CONTROLLERS]

    def _everywhere(self, name: str) -> Iterator[Path]:
        tops = [self._root, *self._root.glob("*/")] if self._root.is_dir() else []
        return (each / BASE / name for each in tops if (each / BASE / name).is_dir())


def _hand_down(folder: Path) -> None:
    """Let the groups below have limits of these kinds; the kernel refuses where processes are in
    the folder itself."""
    given = set((folder / "cgroup.subtree_control").read_text().split())
    for controller in _CONTROLLERS:
        if controller not in given:
            _write(folder / "cgroup.subtree_control", f"+{controller}")


def _count_what_is_below(folder: Path) -> None:
    """Old kernels count a group's own processes alone until they are told otherwise."""
    switch = folder / "memory.use_hierarchy"
    if switch.exists() and switch.read_text().strip() == "0":
        _write(switch, "1")


def _limit_memory_v1(folder: Path, limit: str) -> None:
    """Memory without swap. At no time may memory with swap be less than memory: which of both has
    to come first depends on whether more or less is asked for than before."""
    alone, with_swap = folder / "memory.limit_in_bytes", folder / "memory.memsw.limit_in_bytes"
    if with_swap.exists():  # not where the kernel counts no swap
        with suppress(OSError):
            _write(alone, limit)
        _write(with_swap, limit)
    _write(alone, limit)


def _write(file: Path, value: str) -> None:
    """At once, as the kernel's files want it."""
    file.write_text(value)

"""A kernel and a Ceph cluster that exist in a test only, behind scripted commands."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import evolve

from persys_agent.commands import CommandResult
from persys_agent.storage.mounts import Mount
from persys_agent.testing.commands import ScriptedCommands

__all__ = ["FakeCeph", "FakeKernel"]

_NOTHING_FOUND = 2
_BUSY = 32


class FakeKernel:
    """A ``Kernel`` whose mounts are those that the scripted ``mount`` made."""

    def __init__(
        self, *, filesystems: Sequence[str] = (), buses: Sequence[str] = (), root: bool = True
    ) -> None:
        self.table: list[Mount] = []
        self.busy: set[str] = set()
        self._filesystems = filesystems
        self._buses = buses
        self._root = root
        self._exports: dict[str, Path] = {}

    def script(self, commands: ScriptedCommands) -> None:
        """Answer ``mount`` and ``umount``; what is in ``busy`` cannot be unmounted."""
        commands.on("mount", "-t", answer=self._mount)
        commands.on("mount", "-o", "remount,*", effect=self._remount)
        commands.on("umount", answer=self._umount)

    def mounts(self) -> Sequence[Mount]:
        """See ``Kernel``."""
        return tuple(self.table)

    def knows_filesystem(self, name: str) -> bool:
        """See ``Kernel``."""
        return name in self._filesystems

    def has_bus(self, name: str) -> bool:
        """See ``Kernel``."""
        return name in self._buses

    def is_root(self) -> bool:
        """See ``Kernel``."""
        return self._root

    def export(self, source: str, folder: Path) -> None:
        """Have ``source`` and what is below it be ``folder``: a mounted one leads there."""
        self._exports[source] = folder

    def _mount(self, argv: Sequence[str]) -> CommandResult:
        fs_type, options, source, point = argv[2], tuple(argv[4].split(",")), argv[-2], argv[-1]
        backing = self._backing(source)
        if backing is not None:
            if not backing.is_dir():
                return CommandResult(_BUSY, said="no such file or directory")
            Path(point).rmdir()
            Path(point).symlink_to(backing)
        self.table.append(Mount(point, fs_type, source, options=options))
        return CommandResult(0)

    def _remount(self, argv: Sequence[str]) -> None:
        mode = argv[2].removeprefix("remount,")
        self.table = [
            evolve(each, options=(mode,)) if each.point == argv[-1] else each for each in self.table
        ]

    def _backing(self, source: str) -> Path | None:
        for exported, folder in self._exports.items():
            if source == exported or source.startswith(f"{exported}/"):
                return folder / source.removeprefix(exported).strip("/")
        return None

    def _umount(self, argv: Sequence[str]) -> CommandResult:
        point = Path(argv[-1])
        if argv[-1] in self.busy:
            return CommandResult(_BUSY, said="target is busy")
        found = next((each for each in reversed(self.table) if each.point == argv[-1]), None)
        if found is None:
            return CommandResult(_BUSY, said="not mounted")
        self.table.remove(found)
        if point.is_symlink():
            point.unlink()
            point.mkdir()
        return CommandResult(0)


class FakeCeph:
    """Images by name with their bytes, devices by name, and what blkid finds on each."""

    def __init__(self) -> None:
        self.images: dict[str, int] = {}
        self.devices: dict[str, str] = {}
        self.filesystems: dict[str, str] = {}
        self._next = 0

    def script(self, commands: ScriptedCommands) -> None:
        """Answer ``rbd``, ``blkid`` and ``mkfs``."""
        answers: tuple[tuple[Sequence[str], Callable[[Sequence[str]], CommandResult]], ...] = (
            (("info",), self._info),
            (("create",), self._create),
            (("resize",), self._resize),
            (("rm",), self._rm),
            (("device", "list"), self._list),
            (("device", "map"), self._map),
            (("device", "unmap"), self._unmap),
        )
        for words, answer in answers:
            commands.on("rbd", "--id", "persys", *words, answer=answer)
        commands.on("blkid", answer=self._blkid)
        commands.on("mkfs.*", answer=self._mkfs)
        commands.on("resize2fs")

    def _info(self, argv: Sequence[str]) -> CommandResult:
        if argv[-1] not in self.images:
            return CommandResult(errno.ENOENT, said="no such image")
        return _json({"name": argv[-1], "size": self.images[argv[-1]]})

    def _create(self, argv: Sequence[str]) -> CommandResult:
        return self._resize(argv)

    def _resize(self, argv: Sequence[str]) -> CommandResult:
        gigabytes = int(argv[argv.index("--size") + 1].removesuffix("G"))
        self.images[argv[-1]] = gigabytes << 30
        return CommandResult(0)

    def _rm(self, argv: Sequence[str]) -> CommandResult:
        if argv[-1] in self.devices.values():
            return CommandResult(errno.EBUSY, said="image has watchers")
        gone = self.images.pop(argv[-1], None)
        return CommandResult(errno.ENOENT if gone is None else 0, said="no such image")

    def _list(self, argv: Sequence[str]) -> CommandResult:
        entries = []
        for device, image in self.devices.items():
            pool, _, name = image.partition("/")
            entries.append({"pool": pool, "name": name, "device": device})
        return _json(entries)

    def _map(self, argv: Sequence[str]) -> CommandResult:
        device = f"/dev/rbd{self._next}"
        self._next += 1
        self.devices[device] = argv[-1]
        return CommandResult(0, f"{device}\n".encode())

    def _unmap(self, argv: Sequence[str]) -> CommandResult:
        del self.devices[argv[-1]]
        return CommandResult(0)

    def _blkid(self, argv: Sequence[str]) -> CommandResult:
        found = self.filesystems.get(self.devices[argv[-1]])
        if found is None:
            return CommandResult(_NOTHING_FOUND)
        return CommandResult(0, f"DEVNAME={argv[-1]}\n{found}\n".encode())

    def _mkfs(self, argv: Sequence[str]) -> CommandResult:
        self.filesystems[self.devices[argv[-1]]] = f"TYPE={argv[0].removeprefix('mkfs.')}"
        return CommandResult(0)


def _json(found: object) -> CommandResult:
    return CommandResult(0, json.dumps(found).encode())

"""Real mounts for tests: whether this machine permits them, and block devices from files."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from persys_agent.commands import CommandResult, HostCommands
from tests.servers.required import absent

__all__ = [
    "LoopCeph",
    "needs_loop_devices",
    "needs_mounts",
    "needs_resizing",
    "unmount_below",
]

_CAP_SYS_RESOURCE = 24


def needs_mounts(folder: Path) -> None:
    """Skip, or fail where ``mount`` is required, unless this process may mount."""
    if not _may_mount(str(folder.parent)):
        absent("mount", "this user may not mount")


def needs_loop_devices() -> None:
    """Skip, or fail where ``mount`` is required, unless files can be block devices."""
    if not _has_loop_devices():
        absent("mount", "there are no loop devices, or not for this user")


def needs_resizing() -> None:
    """Skip unless mounted file systems can be resized: sandboxes keep that capability from root."""
    status = Path("/proc/self/status").read_text()
    held = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    if not int(held, 16) >> _CAP_SYS_RESOURCE & 1:
        pytest.skip("a mounted file system grows with CAP_SYS_RESOURCE only")


@cache
def _may_mount(folder: str) -> bool:
    point = Path(folder) / "may-mount"
    point.mkdir(exist_ok=True)
    try:
        if not _ran("mount", "-t", "tmpfs", "-o", "size=1m", "may-mount", str(point)):
            return False
        return _ran("umount", str(point))
    finally:
        point.rmdir()


@cache
def _has_loop_devices() -> bool:
    return os.geteuid() == 0 and _ran("losetup", "--find")


def _ran(*words: str) -> bool:
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def unmount_below(folder: Path) -> None:
    """Unmount what a failed test left in its folder, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    for point in reversed([line.split(" ")[4] for line in lines]):
        if point.startswith(f"{folder}/"):
            subprocess.run(["umount", point], check=False)


class LoopCeph:
    """Real commands of this host, except for ``rbd``: images are files, mapped as loop devices."""

    def __init__(self, folder: Path) -> None:
        self._host = HostCommands()
        self._folder = folder
        self._folder.mkdir()
        self._devices: dict[str, str] = {}

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: timedelta,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        input: bytes = b"",
    ) -> CommandResult:
        """See ``Commands``."""
        if argv[0] != "rbd":
            return await self._host.run(argv, timeout=timeout, env=env, cwd=cwd, input=input)
        words = [word for word in argv[1:] if word not in ("--id", "persys")]
        match words:
            case ["ls", _]:
                return CommandResult(0)
            case ["info", *_, name]:
                return self._info(self._path(name))
            case ["create" | "resize", "--size", size, *_, name]:
                return self._resize(self._path(name), int(size.removesuffix("G")) << 30)
            case ["rm", *_, name]:
                return self._remove(name)
            case ["device", "list", *_]:
                return self._list()
            case ["device", "map", flag, name]:
                return await self._map(flag, name, timeout)
            case ["device", "unmap", device]:
                del self._devices[device]
                return await self._host.run(["losetup", "--detach", device], timeout=timeout)
            case _:
                raise AssertionError(f"rbd {' '.join(words)}")

    def find(self, program: str) -> str:
        """See ``Commands``."""
        return "/usr/bin/rbd" if program == "rbd" else self._host.find(program)

    def close(self) -> None:
        """Let go of every device."""
        for device in self._devices:
            subprocess.run(["losetup", "--detach", device], check=False)

    def _path(self, name: str) -> Path:
        return self._folder / name.partition("/")[2]

    def _info(self, path: Path) -> CommandResult:
        if not path.exists():
            return CommandResult(errno.ENOENT)
        return CommandResult(0, json.dumps({"size": path.stat().st_size}).encode())

    def _resize(self, path: Path, size: int) -> CommandResult:
        with path.open("ab") as file:
            file.truncate(size)
        for device, name in self._devices.items():
            if self._path(name) == path:
                subprocess.run(["losetup", "--set-capacity", device], check=True)
        return CommandResult(0)

    def _remove(self, name: str) -> CommandResult:
        if name in self._devices.values():
            return CommandResult(errno.EBUSY, said="image has watchers")
        if not self._path(name).exists():
            return CommandResult(errno.ENOENT)
        self._path(name).unlink()
        return CommandResult(0)

    def _list(self) -> CommandResult:
        entries = [
            {"pool": name.partition("/")[0], "name": name.partition("/")[2], "device": device}
            for device, name in self._devices.items()
        ]
        return CommandResult(0, json.dumps(entries).encode())

    async def _map(self, flag: str, name: str, timeout: timedelta) -> CommandResult:
        options = ["--read-only"] if flag == "--read-only" else []
        words = ["losetup", *options, "--find", "--show", str(self._path(name))]
        ended = await self._host.run(words, timeout=timeout)
        if ended.ok:
            self._devices[ended.text] = name
        return ended

"""The stage: folders in which a driver mounts volumes for workloads.

Decided here: what is mounted and unmounted, and what is never touched. A mount that is there
already is taken as it is if it is the wanted one; another's is left alone. A folder goes away by
``rmdir`` only, after the kernel's list says that nothing is mounted there: what somebody mounted
or wrote there survives any mistake of ours (defect 35).
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from persys_agent.commands import CommandError, CommandResult, Commands
from persys_agent.storage.mounts import Kernel, Mount, mount_at, mounts_below
from persys_agent.storage.port import StorageFailedError

__all__ = ["Stage"]

_BUSY = 32
"""What umount(8) ends with where it failed."""


class Stage:
    """One driver's stage folder."""

    def __init__(
        self, root: Path, commands: Commands, kernel: Kernel, *, timeout: timedelta
    ) -> None:
        """``root`` may lead over links: the kernel's list names what they lead to."""
        self.root = Path(os.path.realpath(root))
        self._commands = commands
        self._kernel = kernel
        self._timeout = timeout

    def target(self, *parts: str) -> Path:
        """A folder of the stage; the parts are checked names."""
        return self.root.joinpath(*parts)

    def mounted(self, target: Path) -> Mount | None:
        """What is mounted at a folder of the stage."""
        return mount_at(self._kernel.mounts(), str(target))

    def is_mounted_from(self, source: str) -> bool:
        """Whether the source is mounted anywhere on the stage."""
        below = mounts_below(self._kernel.mounts(), str(self.root))
        return any(each.source == source for each in below)

    async def mount(
        self,
        target: Path,
        source: str,
        fs_types: Sequence[str],
        *,
        options: Sequence[str] = (),
        read_only: bool = False,
    ) -> bool:
        """Mount ``source`` with the first of the types; ``False`` where it was mounted already,
        which is then made to be read only, or not, as it is wanted.

        The further types are those that the kernel may list it with. Raises ``StorageFailedError``;
        no folder is left behind then.
        """
        there = self.mounted(target)
        if there is not None:
            _check_ours(there, source, fs_types)
            if there.is_read_only != read_only:
                await self._remount(target, read_only)
            return False
        await asyncio.to_thread(_make_folder, target)
        try:
            await self._mount(target, source, fs_types[0], (*options, "ro" if read_only else "rw"))
        except BaseException:
            with suppress(StorageFailedError):
                await self.remove_folder(target)
            raise
        there = self.mounted(target)
        if there is None:
            await self.remove_folder(target)
            raise StorageFailedError(f"{source}: mount said yes, but {target} is no mount point")
        return True

    async def unmount(self, target: Path, source: str, fs_types: Sequence[str]) -> None:
        """Unmount ``source`` and remove the folder. Raises ``StorageFailedError`` while it is in
        use, and where something else is mounted there or inside."""
        there = self.mounted(target)
        if there is not None:
            _check_ours(there, source, fs_types)
            await self._unmount(target)
        if self.mounted(target) is not None:
            raise StorageFailedError(
                f"{target} is still a mount point: something was mounted there twice; unmount it"
            )
        await self.remove_folder(target)

    async def remove_folder(self, target: Path) -> None:
        """Remove an empty folder, and those around it up to the root while they are empty.

        Raises ``StorageFailedError`` where something is mounted at it or inside, or it holds files.
        """
        inside = mounts_below(self._kernel.mounts(), str(target))
        if inside:
            raise StorageFailedError(
                f"{inside[0].source} is mounted at {inside[0].point}, and not by this agent;"
                " unmount it"
            )
        await asyncio.to_thread(_remove_empty, target, self.root)

    async def run(self, *argv: str) -> CommandResult:
        """Run a command of the driver. Raises ``StorageFailedError`` where it could not end."""
        try:
            return await self._commands.run(argv, timeout=self._timeout)
        except CommandError as error:
            raise StorageFailedError(str(error)) from error

    async def _mount(self, target: Path, source: str, fs_type: str, options: Sequence[str]) -> None:
        ended = await self.run(
            "mount", "-t", fs_type, "-o", ",".join(options), "--", source, str(target)
        )
        if not ended.ok:
            raise StorageFailedError(f"{source} cannot be mounted at {target}: {ended.said}")

    async def _remount(self, target: Path, read_only: bool) -> None:
        options = "remount,ro" if read_only else "remount,rw"
        ended = await self.run("mount", "-o", options, "--", str(target))
        if not ended.ok:
            raise StorageFailedError(f"{target} cannot be mounted anew ({options}): {ended.said}")

    async def _unmount(self, target: Path) -> None:
        ended = await self.run("umount", "--", str(target))
        if not ended.ok:
            what = "is in use, or cannot be unmounted" if ended.code == _BUSY else "stays mounted"
            raise StorageFailedError(f"{target} {what}: {ended.said}; see `fuser -vm {target}`")


def _check_ours(there: Mount, source: str, fs_types: Sequence[str]) -> None:
    if there.source != source or there.fs_type not in fs_types:
        raise StorageFailedError(
            f"{there.source} ({there.fs_type}) is mounted at {there.point} where {source} belongs;"
            " unmount it"
        )


def _make_folder(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise StorageFailedError(f"{target} cannot be made: {error.strerror}") from error


def _remove_empty(target: Path, root: Path) -> None:
    try:
        target.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        told = "holds files that were not put there through the volume; look at them, and remove"
        if error.errno != errno.ENOTEMPTY:
            told = f"cannot be removed ({error.strerror}); remove"
        raise StorageFailedError(f"{target} {told} it") from error
    for folder in target.parents:
        if folder == root or not folder.is_relative_to(root):
            return
        try:
            folder.rmdir()
        except OSError:
            return

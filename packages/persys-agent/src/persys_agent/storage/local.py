"""Driver ``local``: folders of this host.

Decided here: sizes of all volumes count against one pool, and one that does not fit is refused, or
does not grow; a volume of a container is a folder, that of a machine a raw file in it. What a
container writes into its folder is measured, not limited: that needs quotas of the file system.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from persys_agent.commands import CommandError, Commands
from persys_agent.runtimes.port import AttachedVolume, Capability
from persys_agent.settings import NodeSettings
from persys_agent.storage.book import Book, Use
from persys_agent.storage.disk_file import GIB, ensure_disk, ensure_folder, remove_tree
from persys_agent.storage.ledger import Ledger
from persys_agent.storage.measure import folder_use
from persys_agent.storage.mounts import Kernel
from persys_agent.storage.names import volume_key
from persys_agent.storage.port import StorageFailedError, VolumeUse
from persys_core.model.ids import WorkloadId
from persys_core.model.node import StoragePool
from persys_core.model.spec import ManagedVolume

__all__ = ["LocalDriver"]

_RECORDS = ".persys"
_POOL = "root"
"""What agents in the field call their one pool."""


class LocalDriver:
    """See the module."""

    name = "local"

    def __init__(self, settings: NodeSettings, commands: Commands, kernel: Kernel) -> None:
        self._root = Path(settings.storage_local_root)
        self._size_gb = settings.storage_local_size_gb
        self._timeout = settings.storage_command_timeout
        self._commands = commands
        self._kernel = kernel
        self._book = Book(Ledger(self._root / _RECORDS))

    async def probe(self) -> Capability:
        """The root is there, or can be made, and can be written."""
        problem = await asyncio.to_thread(_problem_of, self._root)
        if problem:
            return Capability(False, f"{problem}; set storage_local_root to a folder of your own")
        return Capability(True, f"folders in {self._root}")

    async def pools(self) -> tuple[StoragePool, ...]:
        """The file system that the root stands on, or what of it may be used."""
        total, _ = await asyncio.to_thread(self._space)
        return (StoragePool(_POOL, self.name, total // GIB),)

    async def attach(
        self, volume: ManagedVolume, workload_id: WorkloadId, *, as_device: bool = False
    ) -> AttachedVolume:
        """See ``StorageDriver``."""
        return await self._book.attach(volume, workload_id, as_device, self._provide)

    async def detach(self, volume: ManagedVolume, workload_id: WorkloadId) -> None:
        """Nothing is mounted, so there is only the record."""

        async def take_back(_: Use) -> None:
            return

        await self._book.detach(volume, workload_id, take_back)

    async def delete_data(self, volume: ManagedVolume) -> None:
        """See ``StorageDriver``."""

        async def destroy(key: str) -> None:
            await asyncio.to_thread(remove_tree, self._root / key, self._kernel)

        await self._book.delete(volume, destroy)

    async def use(self, volume: ManagedVolume) -> VolumeUse | None:
        """What its folder takes up."""
        key = volume_key(volume)
        record = await self._book.record(key)
        if record is None:
            return None
        try:
            used = await folder_use(self._commands, self._root / key, self._timeout)
        except CommandError:
            return None
        return None if used is None else VolumeUse(used, record.size_gb * GIB)

    async def _provide(self, use: Use) -> AttachedVolume:
        await self._check_room(use)
        folder = self._root / use.key
        is_new = not await asyncio.to_thread(os.path.lexists, folder)
        await asyncio.to_thread(ensure_folder, folder)
        try:
            if use.record.as_device:
                size = use.record.size_gb
                disk = await asyncio.to_thread(ensure_disk, folder, use.volume, size)
                return AttachedVolume(use.volume, device=str(disk))
        except BaseException:
            if is_new:
                await asyncio.to_thread(remove_tree, folder, self._kernel)
            raise
        return AttachedVolume(use.volume, path=str(folder))

    async def _check_room(self, use: Use) -> None:
        """A volume that is there already and does not grow is not asked again."""
        more = use.record.size_gb - (use.before.size_gb if use.before else 0)
        if more <= 0:
            return
        total, free = await asyncio.to_thread(self._space)
        promised = sum(each.size_gb for each in await self._book.records())
        if promised * GIB > total:
            raise StorageFailedError(
                f"volume {use.volume.name!r}: {more} GiB more make {promised} GiB of volumes, and"
                f" {self._root} has {total // GIB} GiB for them"
            )
        if more * GIB > free:
            raise StorageFailedError(
                f"volume {use.volume.name!r}: {self._root} has {free // GIB} GiB left, and"
                f" {more} GiB are needed"
            )

    def _space(self) -> tuple[int, int]:
        """Bytes for volumes in all, and those that the file system has left."""
        found = shutil.disk_usage(_existing(self._root))
        total = min(found.total, self._size_gb * GIB) if self._size_gb else found.total
        return total, found.free


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def _problem_of(root: Path) -> str:
    """Nothing is made by asking."""
    there = _existing(root)
    if not there.is_dir():
        return f"{there} is not a folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} may not be written by this user"

"""Driver ``nfs``: sub-folders of one export, mounted for each workload.

Decided here: the order. The export itself is mounted for as long as it takes to make or remove the
volume's sub-folder; the sub-folder is then mounted at ``<stage>/<workload>/nfs_<name>``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from persys_agent.commands import CommandError, Commands
from persys_agent.runtimes.port import AttachedVolume, Capability
from persys_agent.settings import NodeSettings
from persys_agent.settings.identity import bracketed
from persys_agent.storage.book import Book, Use
from persys_agent.storage.disk_file import GIB, ensure_disk, ensure_folder, remove_tree
from persys_agent.storage.ledger import Ledger
from persys_agent.storage.measure import folder_use
from persys_agent.storage.mounts import Kernel
from persys_agent.storage.names import volume_key
from persys_agent.storage.needs import first_missing
from persys_agent.storage.port import VolumeUse
from persys_agent.storage.stage import Stage
from persys_agent.storage.undo import undone_on_failure
from persys_core.model.ids import WorkloadId
from persys_core.model.node import StoragePool
from persys_core.model.spec import ManagedVolume

__all__ = ["NfsDriver"]

_TYPES = ("nfs", "nfs4")
_OWN = ".persys"


class NfsDriver:
    """See the module."""

    name = "nfs"

    def __init__(self, settings: NodeSettings, commands: Commands, kernel: Kernel) -> None:
        self._settings = settings
        self._commands = commands
        self._kernel = kernel
        export = settings.storage_nfs_export.rstrip("/")
        self._export = f"{bracketed(settings.storage_nfs_server)}:{export}"
        self._options = tuple(filter(None, settings.storage_nfs_options.split(",")))
        root = Path(settings.storage_nfs_stage_dir)
        self._stage = Stage(root, commands, kernel, timeout=settings.storage_command_timeout)
        self._book = Book(Ledger(root / _OWN / "volumes"))

    async def probe(self) -> Capability:
        """Settings, kernel and tools; whether the server answers shows when it is mounted."""
        if not (self._settings.storage_nfs_server and self._settings.storage_nfs_export):
            return Capability(False, "storage_nfs_server and storage_nfs_export are not set")
        missing = await first_missing(
            *(self._commands, self._kernel),
            programs={"mount": "mount", "umount": "mount", "mount.nfs": "nfs-common"},
            module="nfs",
            is_loaded=self._kernel.knows_filesystem("nfs"),
        )
        return Capability(not missing, missing or f"sub-folders of {self._export}/")

    async def pools(self) -> tuple[StoragePool, ...]:
        """None: the server's space is not this node's."""
        return ()

    async def attach(
        self, volume: ManagedVolume, workload_id: WorkloadId, *, as_device: bool = False
    ) -> AttachedVolume:
        """See ``StorageDriver``."""
        return await self._book.attach(volume, workload_id, as_device, self._provide)

    async def detach(self, volume: ManagedVolume, workload_id: WorkloadId) -> None:
        """See ``StorageDriver``."""
        await self._book.detach(volume, workload_id, self._unmount)

    async def delete_data(self, volume: ManagedVolume) -> None:
        """See ``StorageDriver``. Whether another node has it, the scheduler knows."""

        async def destroy(key: str) -> None:
            async with self._whole_export(key) as export:
                await asyncio.to_thread(remove_tree, export / key, self._kernel)

        await self._book.delete(volume, destroy)

    async def use(self, volume: ManagedVolume) -> VolumeUse | None:
        """What its folder takes up on the server, while it is mounted here."""
        key = volume_key(volume)
        record = await self._book.record(key)
        if record is None or not record.attachments:
            return None
        target = self._stage.target(record.attachments[0].workload_id, f"nfs_{key}")
        if self._stage.mounted(target) is None:
            return None
        try:
            used = await folder_use(self._commands, target, self._settings.storage_command_timeout)
        except CommandError:
            return None
        return None if used is None else VolumeUse(used, record.size_gb * GIB)

    async def _provide(self, use: Use) -> AttachedVolume:
        target = self._target(use)
        if self._stage.mounted(target) is not None:
            await self._mount(use)  # says so if it is another's
            return await self._result(use)
        async with undone_on_failure(lambda: self._unmount(use)):
            async with self._whole_export(use.key) as export:
                is_new = await asyncio.to_thread(_make_sub_folder, export / use.key)
                try:
                    await self._mount(use)
                except BaseException:
                    if is_new:
                        await asyncio.to_thread(_remove_if_empty, export / use.key)
                    raise
            return await self._result(use)

    async def _result(self, use: Use) -> AttachedVolume:
        target = self._target(use)
        if not use.record.as_device:
            return AttachedVolume(use.volume, path=str(target))
        disk = await asyncio.to_thread(ensure_disk, target, use.volume, use.record.size_gb)
        return AttachedVolume(use.volume, device=str(disk))

    async def _mount(self, use: Use) -> None:
        await self._stage.mount(
            *(self._target(use), self._source(use.key), _TYPES),
            options=self._options,
            read_only=use.volume.read_only,
        )

    async def _unmount(self, use: Use) -> None:
        await self._stage.unmount(self._target(use), self._source(use.key), _TYPES)

    @asynccontextmanager
    async def _whole_export(self, key: str) -> AsyncIterator[Path]:
        """The export, mounted for the agent alone; a place for each volume, so that none waits."""
        place = self._stage.target(_OWN, f"export-{key}")
        source = f"{self._export}/" if self._export.endswith(":") else self._export
        await self._stage.mount(place, source, _TYPES, options=self._options)
        try:
            yield place
        finally:
            await self._stage.unmount(place, source, _TYPES)

    def _source(self, key: str) -> str:
        return f"{self._export}/{key}"

    def _target(self, use: Use) -> Path:
        return self._stage.target(use.workload_id, f"nfs_{use.key}")


def _make_sub_folder(folder: Path) -> bool:
    """Whether it was made now."""
    if folder.is_dir() and not folder.is_symlink():
        return False
    ensure_folder(folder)
    return True


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()

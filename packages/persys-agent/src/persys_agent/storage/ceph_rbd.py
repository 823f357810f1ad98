"""Driver ``ceph-rbd``: images of a Ceph pool, mapped by this host's kernel.

Decided here: the order, and what is undone where a step fails: image, mapping, file system, mount.
An image that was made in the same call is removed again, one that was there never is. A machine
gets the mapped device itself and makes its own file system on it. An image is written to from one
host at a time whatever its access mode says, since no file system that is made here bears more:
the mapping holds the image's lock, so a second host's fails.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from attrs import frozen

from persys_agent.commands import Commands
from persys_agent.runtimes.port import AttachedVolume, Capability
from persys_agent.settings import NodeSettings
from persys_agent.storage.book import Book, Use
from persys_agent.storage.disk_file import GIB
from persys_agent.storage.filesystem import (
    DEFAULT_FS,
    checked_fs_type,
    ensure_filesystem,
    grow_filesystem,
)
from persys_agent.storage.ledger import Ledger
from persys_agent.storage.measure import filesystem_use
from persys_agent.storage.mounts import Kernel
from persys_agent.storage.names import volume_key
from persys_agent.storage.needs import first_missing
from persys_agent.storage.port import StorageFailedError, VolumeUse
from persys_agent.storage.rbd_command import RbdCommand
from persys_agent.storage.stage import Stage
from persys_agent.storage.undo import undone_on_failure
from persys_core.model.ids import WorkloadId
from persys_core.model.node import StoragePool
from persys_core.model.spec import ManagedVolume

__all__ = ["CephRbdDriver"]

_OWN = ".persys"
_TYPES = ("ext4", "xfs")
_OWN_NEEDS = 0.85
"""The least share of a device that a file system leaves for data."""
_PROGRAMS = {
    "rbd": "ceph-common",
    "blkid": "util-linux",
    "mount": "mount",
    "umount": "mount",
    "mkfs.ext4": "e2fsprogs",
}


@frozen
class _Mapped:
    """A mapped image."""

    device: str
    size_bytes: int


class CephRbdDriver:
    """See the module."""

    name = "ceph-rbd"

    def __init__(self, settings: NodeSettings, commands: Commands, kernel: Kernel) -> None:
        self._pool = settings.storage_ceph_pool
        self._keyring = settings.storage_ceph_keyring
        self._commands = commands
        self._kernel = kernel
        root = Path(settings.storage_ceph_stage_dir)
        self._stage = Stage(root, commands, kernel, timeout=settings.storage_command_timeout)
        self._rbd = RbdCommand(settings, self._stage)
        self._book = Book(Ledger(root / _OWN / "volumes"))

    async def probe(self) -> Capability:
        """Settings, kernel, tools, and that the cluster lists the pool."""
        if not self._pool:
            return Capability(False, "storage_ceph_pool is not set")
        missing = await first_missing(
            *(self._commands, self._kernel),
            programs=_PROGRAMS,
            module="rbd",
            is_loaded=self._kernel.has_bus("rbd"),
        )
        if missing:
            return Capability(False, missing)
        try:
            trouble = await self._rbd.check()
        except StorageFailedError as error:
            trouble = str(error)
        if trouble:
            return Capability(False, f"pool {self._pool} cannot be listed: {trouble}")
        return Capability(True, f"images of pool {self._pool}")

    async def pools(self) -> tuple[StoragePool, ...]:
        """None: the cluster's space is not this node's."""
        return ()

    async def attach(
        self, volume: ManagedVolume, workload_id: WorkloadId, *, as_device: bool = False
    ) -> AttachedVolume:
        """See ``StorageDriver``."""
        return await self._book.attach(volume, workload_id, as_device, self._provide)

    async def detach(self, volume: ManagedVolume, workload_id: WorkloadId) -> None:
        """Unmount, and let go of the device with its last user."""
        await self._book.detach(volume, workload_id, self._take_back)

    async def delete_data(self, volume: ManagedVolume) -> None:
        """Remove the image. The cluster refuses while any host has it mapped."""
        await self._book.delete(volume, self._rbd.remove)

    async def use(self, volume: ManagedVolume) -> VolumeUse | None:
        """Use of its file system, while it is mounted here."""
        key = volume_key(volume)
        record = await self._book.record(key)
        for attachment in record.attachments if record else ():
            target = self._stage.target(attachment.workload_id, f"{self.name}_{key}")
            if self._stage.mounted(target) is not None:
                return await asyncio.to_thread(filesystem_use, target)
        return None

    async def _provide(self, use: Use) -> AttachedVolume:
        fs_type = DEFAULT_FS if use.record.as_device else checked_fs_type(use.volume.fs_type)
        image = await self._rbd.info(use.key)
        if image is not None:
            return await self._use_image(use, fs_type, image.size_bytes)
        if use.volume.size_gb <= 0 or use.volume.read_only:
            raise StorageFailedError(
                f"volume {use.volume.name!r}: image {self._rbd.image_name(use.key)} does not exist;"
                " making it needs size_gb of at least 1, and a volume that may be written"
            )
        await self._rbd.create(use.key, use.volume.size_gb)
        async with undone_on_failure(lambda: self._rbd.remove(use.key)):
            return await self._use_image(use, fs_type, use.volume.size_gb * GIB)

    async def _use_image(self, use: Use, fs_type: str, size_bytes: int) -> AttachedVolume:
        wanted = use.volume.size_gb * GIB
        if wanted > size_bytes and not use.volume.read_only:
            await self._rbd.grow(use.key, use.volume.size_gb)
            size_bytes = wanted
        device = await self._rbd.device_of(use.key)
        if device:
            return await self._use_device(use, fs_type, _Mapped(device, size_bytes))
        device = await self._rbd.map(use.key, read_only=use.volume.read_only)
        async with undone_on_failure(lambda: self._rbd.unmap(use.key, device)):
            return await self._use_device(use, fs_type, _Mapped(device, size_bytes))

    async def _use_device(self, use: Use, fs_type: str, mapped: _Mapped) -> AttachedVolume:
        if use.record.as_device:
            return AttachedVolume(use.volume, device=mapped.device)
        target, is_read_only = self._target(use), use.volume.read_only
        await ensure_filesystem(self._stage, mapped.device, fs_type, may_make=not is_read_only)
        is_new = await self._stage.mount(target, mapped.device, (fs_type,), read_only=is_read_only)
        if not is_read_only:
            await self._fill(target, fs_type, mapped, is_new)
        return AttachedVolume(use.volume, path=str(target))

    async def _fill(self, target: Path, fs_type: str, mapped: _Mapped, is_new: bool) -> None:
        """Grow the file system to its image, also where an earlier attempt came no further than the
        image. What the file system itself needs is no reason."""

        async def undo() -> None:
            if is_new:
                await self._stage.unmount(target, mapped.device, (fs_type,))

        async with undone_on_failure(undo):
            has = await asyncio.to_thread(filesystem_use, target)
            if has.size_bytes < mapped.size_bytes * _OWN_NEEDS:
                await grow_filesystem(self._stage, mapped.device, str(target), fs_type)

    async def _take_back(self, use: Use) -> None:
        device, target = await self._rbd.device_of(use.key), self._target(use)
        if not device:
            await self._stage.remove_folder(target)
            return
        await self._stage.unmount(target, device, _TYPES)
        if not use.others and not self._stage.is_mounted_from(device):
            await self._rbd.unmap(use.key, device)

    def _target(self, use: Use) -> Path:
        return self._stage.target(use.workload_id, f"{self.name}_{use.key}")

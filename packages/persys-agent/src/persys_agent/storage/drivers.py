"""Every storage driver of this host, by its name."""

from __future__ import annotations

from collections.abc import Mapping

from persys_agent.commands import Commands
from persys_agent.settings import NodeSettings
from persys_agent.storage.ceph_rbd import CephRbdDriver
from persys_agent.storage.local import LocalDriver
from persys_agent.storage.mounts import Kernel, LinuxKernel
from persys_agent.storage.nfs import NfsDriver
from persys_agent.storage.port import StorageDriver

__all__ = ["storage_drivers"]


def storage_drivers(
    settings: NodeSettings, commands: Commands, kernel: Kernel | None = None
) -> Mapping[str, StorageDriver]:
    """All of them; which of them can be used, each one's ``probe`` tells."""
    kernel = kernel or LinuxKernel()
    drivers: tuple[StorageDriver, ...] = (
        LocalDriver(settings, commands, kernel),
        NfsDriver(settings, commands, kernel),
        CephRbdDriver(settings, commands, kernel),
    )
    return {driver.name: driver for driver in drivers}

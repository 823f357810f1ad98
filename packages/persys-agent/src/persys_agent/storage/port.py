"""The port of a storage driver: how a managed volume becomes something that a runtime can mount.

A driver really mounts, or says why it cannot. ``attach`` and ``detach`` are idempotent, and an
``attach`` that fails leaves nothing behind. A stage folder is never removed recursively: it is
unmounted, seen to be no mount point any more, and removed with ``rmdir``. Data goes away through
``delete_data`` alone.
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

from persys_agent.runtimes.port import AttachedVolume, Capability
from persys_core.model.errors import PersysError
from persys_core.model.ids import WorkloadId
from persys_core.model.node import StoragePool
from persys_core.model.spec import ManagedVolume

__all__ = ["StorageDriver", "StorageFailedError", "VolumeUse"]


class StorageFailedError(PersysError):
    """A volume cannot be provided; the text says which, why, and what to do."""


@frozen
class VolumeUse:
    """How much of a volume is used, in bytes; ``size_bytes`` 0 where it has no size of its own."""

    used_bytes: int
    size_bytes: int = 0


class StorageDriver(Protocol):
    """One kind of storage. ``name`` is what specs call it: ``local``, ``nfs``, ``ceph-rbd``."""

    name: str

    async def probe(self) -> Capability:
        """Whether the kernel, the tools and the settings are there. Never raises."""
        ...

    async def pools(self) -> tuple[StoragePool, ...]:
        """What the node registers of it."""
        ...

    async def attach(
        self, volume: ManagedVolume, workload_id: WorkloadId, *, as_device: bool = False
    ) -> AttachedVolume:
        """Make the volume if it is not there, and mount it for this workload (``as_device``: for a
        machine). Raises ``StorageFailedError``."""
        ...

    async def detach(self, volume: ManagedVolume, workload_id: WorkloadId) -> None:
        """Undo ``attach``; the data stays. Raises ``StorageFailedError`` while it is in use."""
        ...

    async def delete_data(self, volume: ManagedVolume) -> None:
        """Remove the volume's data for good. Raises ``StorageFailedError`` while it is attached."""
        ...

    async def use(self, volume: ManagedVolume) -> VolumeUse | None:
        """How much is used; ``None`` where that is not known."""
        ...

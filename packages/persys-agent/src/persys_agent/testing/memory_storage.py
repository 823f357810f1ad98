"""``MemoryStorage``: a storage driver whose volumes live in a dict."""

from __future__ import annotations

from attrs import define, field

from persys_agent.runtimes.port import AttachedVolume, Capability
from persys_agent.storage.port import StorageFailedError, VolumeUse
from persys_agent.testing.faults import Faults
from persys_core.model.ids import WorkloadId
from persys_core.model.node import StoragePool
from persys_core.model.spec import ManagedVolume
from persys_core.ports.clock import Clock

__all__ = ["MemoryDisks", "MemoryStorage"]


@define
class MemoryDisks:
    """The machine's disks: they survive the agent. ``attached`` has (volume, workload); ``root`` is
    where volumes are found."""

    clock: Clock
    faults: Faults = field(init=False)
    volumes: set[str] = field(factory=set)
    root: str = "/memory"
    attached: set[tuple[str, WorkloadId]] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.faults = Faults(self.clock)


class MemoryStorage:
    """Implements ``storage.port.StorageDriver`` on ``MemoryDisks``."""

    def __init__(self, disks: MemoryDisks, name: str = "local") -> None:
        self.name = name
        self._disks = disks

    async def probe(self) -> Capability:
        """As the port says."""
        return Capability(True, "memory")

    async def pools(self) -> tuple[StoragePool, ...]:
        """As the port says."""
        return (StoragePool("memory", self.name, 100),)

    async def attach(
        self, volume: ManagedVolume, workload_id: WorkloadId, *, as_device: bool = False
    ) -> AttachedVolume:
        """As the port says."""
        await self._disks.faults.call("attach", volume.name)
        self._disks.volumes.add(volume.name)
        self._disks.attached.add((volume.name, workload_id))
        place = f"{self._disks.root}/{volume.name}"
        return AttachedVolume(volume, **({"device": place} if as_device else {"path": place}))

    async def detach(self, volume: ManagedVolume, workload_id: WorkloadId) -> None:
        """As the port says."""
        await self._disks.faults.call("detach", volume.name)
        self._disks.attached.discard((volume.name, workload_id))

    async def delete_data(self, volume: ManagedVolume) -> None:
        """As the port says."""
        await self._disks.faults.call("delete_data", volume.name)
        if any(name == volume.name for name, _ in self._disks.attached):
            raise StorageFailedError(f"volume {volume.name} is attached")
        self._disks.volumes.discard(volume.name)

    async def use(self, volume: ManagedVolume) -> VolumeUse | None:
        """As the port says."""
        return VolumeUse(1) if volume.name in self._disks.volumes else None

"""Managed volumes of one workload: attached before it is made, detached after it is gone.

Decided here: what is undone when one of several fails: what this operation attached, never what
was attached before, and never data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from persys_agent.engine.backends import Backends
from persys_agent.engine.failures import OperationError
from persys_agent.runtimes.port import AttachedVolume
from persys_agent.storage.port import StorageFailedError
from persys_core.model.ids import WorkloadId
from persys_core.model.spec import ManagedVolume, WorkloadSpec
from persys_core.model.states import WorkloadType
from persys_core.volumes.wishes import volume_id

__all__ = ["Volumes", "missing_from", "moved"]

_MACHINES = (WorkloadType.VM, WorkloadType.MICROVM)
_ATTACH_FAILED = "STORAGE_ATTACH_FAILED"
_KEPT = "retain"


class Volumes:
    """Every verb may raise ``OperationError`` with ``VOLUME_MOUNT_FAILED`` unless it says so."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def attach(
        self, workload_id: WorkloadId, spec: WorkloadSpec, before: Sequence[AttachedVolume]
    ) -> tuple[AttachedVolume, ...]:
        """Attach all volumes of ``spec``; those not in ``before`` are undone if one fails."""
        done: list[AttachedVolume] = []
        try:
            for volume in spec.managed_volumes:
                done.append(await self._attach(volume, workload_id, spec.type))
        except OperationError:
            await self.undo(workload_id, done, before)
            raise
        return tuple(done)

    async def undo(
        self,
        workload_id: WorkloadId,
        done: Iterable[AttachedVolume],
        before: Sequence[AttachedVolume],
    ) -> None:
        """Detach what is in ``done`` and was not there ``before``. Raises nothing."""
        for each in missing_from(before, done):
            try:
                await self.detach(workload_id, each.volume)
            except OperationError as error:
                structlog.get_logger().warning("a volume stays attached", error=str(error))

    async def detach(self, workload_id: WorkloadId, volume: ManagedVolume) -> None:
        """Detach one; its data stays."""
        driver = self._backends.driver(volume.driver)
        if driver is None:
            raise _failed(workload_id, _no_driver(volume))
        try:
            await driver.detach(volume, workload_id)
        except StorageFailedError as error:
            raise _failed(workload_id, str(error)) from error

    async def delete_data(self, workload_id: WorkloadId, volume: ManagedVolume) -> None:
        """Remove a volume's data, unless its policy keeps it."""
        driver = self._backends.driver(volume.driver)
        if driver is None or volume.retain_policy.strip().lower() == _KEPT:
            return
        try:
            await driver.delete_data(volume)
        except StorageFailedError as error:
            raise _failed(workload_id, str(error)) from error

    async def _attach(
        self, volume: ManagedVolume, workload_id: WorkloadId, kind: WorkloadType
    ) -> AttachedVolume:
        driver = self._backends.driver(volume.driver)
        if driver is None:
            raise _failed(workload_id, _no_driver(volume))
        try:
            return await driver.attach(volume, workload_id, as_device=kind in _MACHINES)
        except StorageFailedError as error:
            raise _failed(workload_id, str(error)) from error


def missing_from(
    known: Sequence[AttachedVolume], wanted: Iterable[AttachedVolume]
) -> tuple[AttachedVolume, ...]:
    """Those of ``wanted`` whose volume is not in ``known``."""
    names = {volume_id(each.volume) for each in known}
    return tuple(each for each in wanted if volume_id(each.volume) not in names)


def moved(before: Sequence[AttachedVolume], now: Sequence[AttachedVolume]) -> bool:
    """Whether a volume that was attached is at another place now."""
    places = {volume_id(each.volume): (each.path, each.device) for each in before}
    return any(
        places.get(volume_id(each.volume), (each.path, each.device)) != (each.path, each.device)
        for each in now
    )


def _no_driver(volume: ManagedVolume) -> str:
    return f'storage driver "{volume.driver}" is not registered'


def _failed(workload_id: WorkloadId, cause: str) -> OperationError:
    return OperationError(
        "VOLUME_MOUNT_FAILED",
        "managed storage setup failed",
        workload_id,
        cause=cause,
        reason=_ATTACH_FAILED,
    )

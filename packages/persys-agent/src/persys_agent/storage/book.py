"""How every driver attaches, detaches and deletes: one at a time per volume, and on the record.

Decided here: the record of a use is written before anything is done and taken back if that fails,
so that a crash in between leaves a volume that looks used, never one that is used and looks free;
it goes away after the use has ended. What is done is the driver's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from attrs import frozen

from persys_agent.runtimes.port import AttachedVolume
from persys_agent.storage.ledger import Ledger, VolumeRecord, admitted, without
from persys_agent.storage.names import checked_workload_id, volume_key
from persys_agent.storage.port import StorageFailedError
from persys_core.model.ids import WorkloadId
from persys_core.model.spec import ManagedVolume

__all__ = ["Book", "Use"]

T = TypeVar("T")


@frozen
class Use:
    """A volume, and what it is used for. ``record`` is as it will be, ``before`` as it was.

    ``others``: other workloads of this host use it as well.
    """

    key: str
    volume: ManagedVolume
    workload_id: WorkloadId
    record: VolumeRecord
    before: VolumeRecord | None

    @property
    def others(self) -> bool:
        uses = self.before.attachments if self.before else ()
        return any(each.workload_id != self.workload_id for each in uses)


class Book:
    """The uses of one driver's volumes on this host."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._turns: dict[str, _Turn] = {}

    async def attach(
        self,
        volume: ManagedVolume,
        workload_id: WorkloadId,
        as_device: bool,
        provide: Callable[[Use], Awaitable[AttachedVolume]],
    ) -> AttachedVolume:
        """Have ``provide`` make it ready. Raises ``StorageFailedError``."""
        key = volume_key(volume)
        checked_workload_id(workload_id)
        async with self._alone(key):
            before = await self.record(key)
            use = Use(
                *(key, volume, workload_id),
                admitted(before, key, volume, workload_id, as_device),
                before,
            )
            await self._keep(use.record)
            try:
                return await provide(use)
            except BaseException:
                await self._restore(key, before)
                raise

    async def detach(
        self,
        volume: ManagedVolume,
        workload_id: WorkloadId,
        take_back: Callable[[Use], Awaitable[None]],
    ) -> None:
        """Have ``take_back`` undo it, also where nothing of it is on record."""
        key = volume_key(volume)
        checked_workload_id(workload_id)
        async with self._alone(key):
            before = await self.record(key)
            record = without(before or VolumeRecord(key, volume.name), workload_id)
            await take_back(Use(key, volume, workload_id, record, before))
            if before is not None:
                await self._keep(record)

    async def delete(
        self, volume: ManagedVolume, destroy: Callable[[str], Awaitable[None]]
    ) -> None:
        """Have ``destroy`` remove the data. Raises ``StorageFailedError`` while it is used."""
        key = volume_key(volume)
        async with self._alone(key):
            record = await self.record(key)
            if record is not None:
                _check_unused(record, volume)
            await destroy(key)
            await _off_the_loop(self._ledger.drop, key)

    async def record(self, key: str) -> VolumeRecord | None:
        """What is on record of a volume."""
        return await asyncio.to_thread(self._ledger.get, key)

    async def records(self) -> Sequence[VolumeRecord]:
        """Everything on record."""
        return await asyncio.to_thread(lambda: tuple(self._ledger.all()))

    async def _keep(self, record: VolumeRecord) -> None:
        await _off_the_loop(self._ledger.put, record)

    async def _restore(self, key: str, before: VolumeRecord | None) -> None:
        if before is None:
            await _off_the_loop(self._ledger.drop, key)
        else:
            await self._keep(before)

    @asynccontextmanager
    async def _alone(self, key: str) -> AsyncIterator[None]:
        """Locks are let go of with their last user, so that they do not grow with every name."""
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]


class _Turn:
    """Whose turn it is with a volume, and how many want it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


def _check_unused(record: VolumeRecord, volume: ManagedVolume) -> None:
    if record.name.strip() != volume.name.strip():
        raise StorageFailedError(
            f"volume {volume.name!r}: its data is that of volume {record.name!r}; nothing is"
            " removed"
        )
    if record.attachments:
        raise StorageFailedError(
            f"volume {volume.name!r}: workload {record.attachments[0].workload_id} has it; its data"
            " is removed once that is gone"
        )


async def _off_the_loop(change: Callable[[T], None], what: T) -> None:
    try:
        await asyncio.to_thread(change, what)
    except OSError as error:
        raise StorageFailedError(
            f"{error.filename or 'the record of volumes'} cannot be written: {error.strerror}"
        ) from error

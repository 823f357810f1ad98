"""Registrations as one database would hold them: the records of replicas, under their leases.

Decided here: that a replica's record and its acknowledgement are removed when its lease has run
out, also where the replica is dead, stopped or cut off; and that such records without a lease, left
by a killed process or by a restored backup, are removed by the next registration. How a replica
registers is decided in ``registering``.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from attrs import define, field

from persys_core.memory.leases import Lease
from persys_core.model.ids import StoreRevision
from persys_core.model.replica import InstanceId, ReplicaRecord
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import (
    ClusterStore,
    Commit,
    Delete,
    Expectation,
    Key,
    Kind,
    Record,
    StoreUnavailableError,
    Versioned,
)
from persys_core.ports.membership import InstanceTakenError

__all__ = ["Registrations", "ReplicaLease", "erase_records"]

_UNDER_LEASE = (Kind.REPLICA, Kind.SHARD_ACK)
_LEAST_WAIT = timedelta(milliseconds=1)
_AGAIN = timedelta(seconds=1)


@define(eq=False)
class ReplicaLease(Lease):
    """One registration. ``epoch``: the creation of its ``record``, 0 before it is known.

    ``written`` is set when the record's commit is over, however it ended.
    """

    epoch: StoreRevision = 0
    record: ReplicaRecord | None = None
    written: asyncio.Event = field(factory=asyncio.Event, init=False)

    def is_of(self, found: Versioned[Record]) -> bool:
        """Whether ``found`` is its record. A store that went back counts revisions anew."""
        return found.create_revision == self.epoch and found.value == self.record


class Registrations:
    """Who is registered. ``store`` is the database's own way to its records.

    A lease stands here until its deadline, though its holder has given up: as in a database that
    was not told so.
    """

    def __init__(self, store: ClusterStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._leases: dict[InstanceId, ReplicaLease] = {}
        self._ends: dict[ReplicaLease, asyncio.Task[None]] = {}

    async def grant(self, instance_id: InstanceId, ttl: float) -> ReplicaLease:
        """A lease of ``ttl`` seconds, after whatever no lease holds was removed.

        InstanceTakenError while another holds one for this name; StoreUnavailableError.
        """
        former = self._leases.get(instance_id)
        if former is not None and former.is_valid(self._clock.monotonic()):
            raise InstanceTakenError(
                f"a replica is registered as {instance_id} already: give each a name of its own,"
                " or wait until the lease of the other one has run out"
            )
        if former is not None:
            self.release(former)
        lease = ReplicaLease(instance_id, self._clock.monotonic() + ttl)
        self._leases[instance_id] = lease
        try:
            await self._sweep(lease)
        except BaseException:
            self.release(lease)
            raise
        lease.deadline = self._clock.monotonic() + ttl
        self._ends[lease] = asyncio.create_task(
            self._see_end(lease), name=f"{instance_id}: the end of its registration"
        )
        return lease

    def release(self, lease: ReplicaLease) -> None:
        """End the lease at once; its records are the caller's to remove."""
        lease.ended.set()
        if self._leases.get(lease.instance_id) is lease:
            del self._leases[lease.instance_id]
        end = self._ends.pop(lease, None)
        if end is not None:
            end.cancel()

    def close(self) -> None:
        """End every lease and remove nothing."""
        for lease in tuple(self._leases.values()):
            self.release(lease)

    async def _see_end(self, lease: ReplicaLease) -> None:
        """Wait for the deadline, which moves, and remove what stood under the lease."""
        while (left := lease.deadline - self._clock.monotonic()) > 0:
            await self._clock.sleep(max(_LEAST_WAIT, timedelta(seconds=left)))
        lease.ended.set()
        # A commit that is still under way may come through.
        await lease.written.wait()
        while not await self._is_erased(lease.instance_id):
            await self._clock.sleep(_AGAIN)
        self._ends.pop(lease)
        del self._leases[lease.instance_id]

    async def _is_erased(self, instance_id: InstanceId) -> bool:
        try:
            await erase_records(self._store, instance_id)
        except StoreUnavailableError:
            return False
        return True

    async def _sweep(self, granted: ReplicaLease) -> None:
        records = (await self._store.snapshot()).records
        named = {key.id for key, found in records.items() if not self._is_held(key, found)}
        for instance_id in sorted(named | {granted.instance_id}):
            await erase_records(self._store, instance_id)

    def _is_held(self, key: Key, found: Versioned[Record]) -> bool:
        if key.kind not in _UNDER_LEASE:
            return True
        lease = self._leases.get(key.id)
        if lease is None:
            return False
        return key.kind is not Kind.REPLICA or not lease.epoch or lease.is_of(found)


async def erase_records(
    store: ClusterStore, instance_id: InstanceId, epoch: StoreRevision = 0
) -> None:
    """Remove a replica's record and acknowledgement; with ``epoch`` those of that life alone."""
    keys = (Key.replica(instance_id), Key.shard_ack(instance_id))
    while True:
        found = {key: each for key, each in (await store.get(keys)).items() if each is not None}
        record = found.get(keys[0])
        if not found or (epoch and (record is None or record.create_revision != epoch)):
            return
        expects = tuple(Expectation(key, revision=each.revision) for key, each in found.items())
        writes = tuple(Delete(key) for key in found)
        token = f"{instance_id}:ends:{max(each.revision for each in found.values())}"
        await store.commit(Commit(expects, writes, token))

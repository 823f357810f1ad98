"""How a replica that shares a hub registers: what it writes by its own store.

Decided here: the commits of a registration and of an acknowledgement. How long they stand is
decided in ``registrations``.
"""

from __future__ import annotations

from persys_core.memory.registrations import Registrations, ReplicaLease, erase_records
from persys_core.model.replica import ReplicaRecord, ShardAcknowledgement
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import (
    ClusterStore,
    Commit,
    Committed,
    Conflict,
    Expectation,
    Key,
    Put,
    StoreUnavailableError,
)
from persys_core.ports.membership import InstanceTakenError, Leadership, RegistrationLostError

__all__ = ["Registering"]

_MOST_TRIES = 3


class Registering:
    """One replica's registrations. ``store`` is its own, which may be away."""

    def __init__(self, leases: Registrations, store: ClusterStore, clock: Clock) -> None:
        self._leases = leases
        self._store = store
        self._clock = clock

    async def put(self, lease: ReplicaLease, record: ReplicaRecord) -> Leadership:
        """Put the record. StoreUnavailableError, also where ``lease`` ran out over it."""
        key = Key.replica(record.instance_id)
        wanted = Expectation(key, revision=0)
        token = f"{record.instance_id}:registers:{lease.deadline}"
        try:
            result = await self._store.commit(Commit((wanted,), (Put(key, record),), token))
        finally:
            lease.written.set()
        if isinstance(result, Conflict):
            raise InstanceTakenError(f"somebody else put a record for {record.instance_id}")
        lease.epoch, lease.record = result.revision, record
        if not lease.is_valid(self._clock.monotonic()):
            raise StoreUnavailableError(
                f"the store took longer to register {record.instance_id} than its lease lasts"
            )
        fence = Expectation(key, create_revision=lease.epoch)
        return Leadership("", record.instance_id, lease.epoch, fence)

    async def acknowledge(self, lease: ReplicaLease, held: Leadership, version: int) -> None:
        """Put the acknowledgement under ``lease``; as ``Membership.acknowledge``."""
        key = Key.shard_ack(lease.instance_id)
        put = Put(key, ShardAcknowledgement(lease.instance_id, version))
        revision, tries = 0, 0
        while lease.is_valid(self._clock.monotonic()):
            if (tries := tries + 1) > _MOST_TRIES:
                raise StoreUnavailableError(f"{key} cannot be written: it changes all the time")
            expects = (held.fence, Expectation(key, revision=revision))
            token = f"{lease.instance_id}:acknowledges:{version}:{revision}"
            result = await self._store.commit(Commit(expects, (put,), token))
            if isinstance(result, Committed):
                return
            record, found = result.current[held.fence.key], result.current[key]
            if record is None or record.create_revision != held.epoch:
                lease.ended.set()
            elif found is not None and found.value == put.value:
                return
            revision = found.revision if found is not None else 0
        raise RegistrationLostError(
            f"{lease.instance_id} is not registered any more, so its word on version {version} of"
            " the shard map is not taken: register again"
        )

    async def renew(self, lease: ReplicaLease, ttl: float) -> bool:
        """Renew the lease for ``ttl`` seconds from now; false where the store does not answer.

        It goes the way of the records, so that a replica without its store is not held to be
        there. The lease ends if its record is gone or is a restored backup's.
        """
        key, asked_at = Key.replica(lease.instance_id), self._clock.monotonic()
        try:
            found = (await self._store.get([key]))[key]
        except StoreUnavailableError:
            return False
        if lease.epoch and (found is None or not lease.is_of(found)):
            lease.ended.set()
        lease.renew(self._clock.monotonic(), asked_at + ttl)
        return True

    async def give_up(self, lease: ReplicaLease) -> None:
        """End the lease and remove its records; where the store is away the lease runs out.

        StoreUnavailableError.
        """
        lease.ended.set()
        if lease.epoch:
            await erase_records(self._store, lease.instance_id, lease.epoch)
            self._leases.release(lease)

"""What a replica puts under its lease on etcd: its record and its acknowledgement.

Decided here: that a name that is another process's is left alone, and that what stands there
without a lease, or under a former one of this process, is replaced.
"""

from __future__ import annotations

from persys_adapters.etcd.client import (
    Compare,
    DeleteKey,
    EtcdClient,
    GetKey,
    KeyValue,
    LeaseLostError,
    Put,
    RangeResult,
    TxnResult,
)
from persys_adapters.etcd.errors import translated
from persys_adapters.etcd.sessions import Session
from persys_adapters.records.codec import encode
from persys_adapters.records.layout import path_of
from persys_core.model.replica import InstanceId, ReplicaRecord, ShardAcknowledgement
from persys_core.ports.cluster_store import Expectation, Key, StoreUnavailableError
from persys_core.ports.membership import InstanceTakenError, Leadership, RegistrationLostError

__all__ = ["Registrations"]

_MOST_TRIES = 3


class Registrations:
    """One replica's records under ``prefix``."""

    def __init__(self, client: EtcdClient, instance_id: InstanceId, prefix: str) -> None:
        self._client = client
        self._instance_id = instance_id
        self._replica = Key.replica(instance_id)
        self._ack = Key.shard_ack(instance_id)
        self._replica_path = (prefix + path_of(self._replica)).encode()
        self._ack_path = (prefix + path_of(self._ack)).encode()
        self._own: set[int] = set()
        """Every lease of a registration of this process."""

    async def put(self, session: Session, record: ReplicaRecord) -> Leadership:
        """Put the record under the lease. StoreUnavailableError, InstanceTakenError."""
        self._own.add(session.lease_id)
        value = encode(self._replica, record)
        for _ in range(_MOST_TRIES):
            with translated():
                done = await self._client.txn(
                    [Compare(self._replica_path, create_revision=0)],
                    [Put(self._replica_path, value, session.lease_id), DeleteKey(self._ack_path)],
                    [GetKey(self._replica_path)],
                )
            if done.succeeded:
                session.holds(self._replica_path, done.revision)
                fence = Expectation(self._replica, create_revision=done.revision)
                return Leadership("", self._instance_id, done.revision, fence)
            [found] = _found(done)
            if found is not None:
                await self._make_room(found)
        raise StoreUnavailableError(f"{self._replica} cannot be put: it changes all the time")

    async def acknowledge(self, session: Session, held: Leadership, version: int) -> None:
        """Put the acknowledgement under the lease, as ``Membership.acknowledge``."""
        try:
            with translated():
                is_done = await self._acknowledge(session, held, version)
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, LeaseLostError):
                raise
            is_done = False
        if not is_done:
            session.ended.set()
            raise RegistrationLostError(
                f"{self._instance_id} is not registered any more, so its word on version {version}"
                " of the shard map is not taken: register again"
            )

    async def _acknowledge(self, session: Session, held: Leadership, version: int) -> bool:
        """False where the record is not that of this registration."""
        value = encode(self._ack, ShardAcknowledgement(self._instance_id, version))
        mine = Compare(self._replica_path, create_revision=held.epoch)
        revision = 0
        for _ in range(_MOST_TRIES):
            done = await self._client.txn(
                [mine, Compare(self._ack_path, mod_revision=revision)],
                [Put(self._ack_path, value, session.lease_id)],
                [GetKey(self._replica_path), GetKey(self._ack_path)],
            )
            if done.succeeded:
                return True
            record, ack = _found(done)
            if record is None or record.create_revision != held.epoch:
                return False
            if ack is not None and ack.value == value:
                return True
            revision = ack.mod_revision if ack is not None else 0
        raise StoreUnavailableError(f"{self._ack} cannot be put: it changes all the time")

    async def _make_room(self, found: KeyValue) -> None:
        if found.lease and found.lease not in self._own:
            raise InstanceTakenError(
                f"a replica is registered as {self._instance_id} already, under the lease"
                f" {found.lease:x}: give each a name of its own, or wait until that has run out"
            )
        with translated():
            await self._client.txn(
                [Compare(self._replica_path, mod_revision=found.mod_revision)],
                [DeleteKey(self._replica_path), DeleteKey(self._ack_path)],
            )


def _found(done: TxnResult) -> list[KeyValue | None]:
    """What the reads of a transaction found, in their order."""
    ranges = (answer for answer in done.responses if isinstance(answer, RangeResult))
    return [answer.kvs[0] if answer.kvs else None for answer in ranges]

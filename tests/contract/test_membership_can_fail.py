"""The contract of registrations finds the faults that it is there for."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import pytest
from attrs import evolve

from persys_core.memory.membership import MemoryMembership
from persys_core.memory.registrations import ReplicaLease
from persys_core.model.replica import ReplicaRecord, ShardAcknowledgement
from persys_core.ports.cluster_store import Commit, Delete, Key, Put
from persys_core.ports.membership import (
    InstanceTakenError,
    Leadership,
    Membership,
    RegistrationLostError,
)
from persys_core.testing.membership import MembershipCluster
from persys_core.testing.registrations import RegistrationContract
from tests.contract.test_small_ports_memory import MemoryCluster

Rule: TypeAlias = Callable[[MembershipCluster], Awaitable[None]]
RULES = RegistrationContract()


class KeepsTheDead(MemoryMembership):
    """Nobody removes what stood under a lease that ran out."""

    async def register(self, record: ReplicaRecord) -> Leadership:
        held = await super().register(record)
        for end in tuple(self._registrations._ends.values()):
            end.cancel()
        return held


class NeverLoses(MemoryMembership):
    """A replica that believes in its lease for ever."""

    def is_valid(self, leadership: Leadership) -> bool:
        return not leadership.election or super().is_valid(leadership)


class TakesOver(MemoryMembership):
    """A name is whoever's came last."""

    async def register(self, record: ReplicaRecord) -> Leadership:
        with suppress(InstanceTakenError):
            return await super().register(record)
        key = Key.replica(record.instance_id)
        await self._store.commit(Commit((), (Delete(key),), "takes"))
        self._registrations.release(self._registrations._leases[record.instance_id])
        return await super().register(record)


class SpeaksUnfenced(MemoryMembership):
    """An acknowledgement is put whatever became of the registration."""

    async def acknowledge(self, registration: Leadership, version: int) -> None:
        word = ShardAcknowledgement(self.instance_id, version)
        put = Put(Key.shard_ack(self.instance_id), word)
        await self._store.commit(Commit((), (put,), f"word {version}"))
        if not self.is_valid(registration):
            raise RegistrationLostError("too late")


class WritesRenewals(MemoryMembership):
    """Each renewal is a write."""

    async def _renew_once(self, lease: object) -> bool:
        if isinstance(lease, ReplicaLease) and lease.record is not None:
            put = Put(Key.replica(lease.instance_id), lease.record)
            await self._store.commit(Commit((), (put,), f"renewal {lease.deadline}"))
        assert isinstance(lease, ReplicaLease)
        return await super()._renew_once(lease)


class LeavesItsWord(MemoryMembership):
    """Who resigns leaves its acknowledgement behind."""

    async def resign(self, leadership: Leadership) -> None:
        key = Key.shard_ack(self.instance_id)
        left = (await self._store.get([key]))[key]
        await super().resign(leadership)
        if left is not None:
            await self._store.commit(Commit((), (Put(key, left.value),), "left"))


class OldEpochs(MemoryMembership):
    """The epoch is not the record's creation."""

    async def register(self, record: ReplicaRecord) -> Leadership:
        held = await super().register(record)
        wrong = evolve(held, epoch=held.epoch + 1)
        self._held[wrong] = self._held[held]
        return wrong


class BrokenCluster(MemoryCluster):
    def __init__(self, kind: type[MemoryMembership]) -> None:
        super().__init__()
        self._kind = kind

    async def join(self, instance_id: str) -> Membership:
        replica = self._kind(self.hub, self._store, self.clock, instance_id, self.ttl)
        self.replicas.append(replica)
        return replica


CASES: list[tuple[type[MemoryMembership], Rule]] = [
    (KeepsTheDead, RULES.test_the_stalled_vanish),
    (NeverLoses, RULES.test_the_stalled_vanish),
    (NeverLoses, RULES.test_a_removed_record_is_noticed),
    (TakesOver, RULES.test_a_name_is_not_taken_over),
    (SpeaksUnfenced, RULES.test_the_word_of_a_removed_one_is_refused),
    (WritesRenewals, RULES.test_a_registration_is_kept),
    (LeavesItsWord, RULES.test_resigning_removes_both_records),
    (OldEpochs, RULES.test_a_registered_replica_is_seen),
]


def case_name(value: object) -> str:
    return str(getattr(value, "__name__", value))


@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "rule"), CASES, ids=case_name)
async def test_a_broken_promise_is_found(kind: type[MemoryMembership], rule: Rule) -> None:
    """A membership with this fault fails this rule, which a sound one passes."""
    await rule(BrokenCluster(MemoryMembership))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await rule(BrokenCluster(kind))

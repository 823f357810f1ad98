"""Contract of Membership: registrations, whose records live as long as their replica.

A part of ``MembershipContract``, which is what to subclass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from persys_core.model.replica import HaMode, ReplicaRecord, ShardAcknowledgement
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation
from persys_core.ports.cluster_store import Commit, Expectation, Key, Put
from persys_core.ports.membership import (
    InstanceTakenError,
    Leadership,
    Membership,
    RegistrationLostError,
)
from persys_core.testing.cluster_store_backend import (
    commit_of,
    committed,
    conflicted,
    read,
    remove,
)
from persys_core.testing.membership_cluster import (
    PATIENCE_SECONDS,
    STEPS_PER_TTL,
    MembershipCluster,
    closing,
)

__all__ = ["RegistrationContract"]

ONE, ONES_WORD = Key.replica("one"), Key.shard_ack("one")
_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _record(membership: Membership) -> ReplicaRecord:
    return ReplicaRecord(
        membership.instance_id, _AT, "1.2.3", HaMode.ACTIVE_ACTIVE, 3, 1, "10.0.0.1:8085"
    )


async def _registered(membership: Membership) -> Leadership:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await membership.register(_record(membership))


def _write(fence: Expectation) -> Commit:
    """A commit of a member of that registration."""
    return commit_of(Put(Key.allocation("n1"), Allocation("n1", Resources(), 1)), expects=[fence])


async def _advance_until(
    cluster: MembershipCluster, condition: Callable[[], Awaitable[bool]]
) -> None:
    """Let time pass in small steps; three leases at most."""
    for _ in range(3 * STEPS_PER_TTL):
        if await condition():
            return
        await cluster.advance(cluster.ttl / STEPS_PER_TTL)
    raise AssertionError("it did not come about within three leases")


@pytest.mark.asyncio
class RegistrationContract:
    """Give it a ``cluster`` fixture. Every rule closes the cluster itself."""

    async def test_a_registered_replica_is_seen(self, cluster: MembershipCluster) -> None:
        """The record stands in the store; the epoch is its creation, and commits may expect it."""
        async with closing(cluster):
            one = await cluster.join("one")
            held = await _registered(one)
            found = await read(cluster.store, ONE)
            assert found is not None
            assert found.value == _record(one)
            assert held == Leadership("", "one", found.create_revision, held.fence)
            assert held.fence == Expectation(ONE, create_revision=held.epoch)
            assert one.is_valid(held)
            await committed(cluster.store, _write(held.fence))

    async def test_a_registration_is_kept(self, cluster: MembershipCluster) -> None:
        """A replica that runs stays registered over many leases, and no renewal is a write."""
        async with closing(cluster):
            one = await cluster.join("one")
            held = await _registered(one)
            before = await read(cluster.store, ONE)
            for _ in range(4 * STEPS_PER_TTL):
                await cluster.advance(cluster.ttl / STEPS_PER_TTL)
                assert one.is_valid(held)
            assert await read(cluster.store, ONE) == before

    async def test_another_name_cannot_be_registered(self, cluster: MembershipCluster) -> None:
        """A replica registers itself, nobody else."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            with pytest.raises(ValueError, match="two"):
                await one.register(_record(two))

    async def test_acknowledgements_stand_beside_the_record(
        self, cluster: MembershipCluster
    ) -> None:
        """The last word of a replica is what is read, and saying it again changes nothing."""
        async with closing(cluster):
            one = await cluster.join("one")
            held = await _registered(one)
            for version in (3, 4, 4):
                await one.acknowledge(held, version)
                found = await read(cluster.store, ONES_WORD)
                assert found is not None
                assert found.value == ShardAcknowledgement("one", version)
            assert one.is_valid(held)

    async def test_resigning_removes_both_records(self, cluster: MembershipCluster) -> None:
        """A replica that leaves is gone at once; its fence fails and its word is refused."""
        async with closing(cluster):
            one = await cluster.join("one")
            held = await _registered(one)
            await one.acknowledge(held, 1)
            losing = asyncio.create_task(one.lost(held))
            await one.resign(held)
            assert not one.is_valid(held)
            assert await read(cluster.store, ONE) is None
            assert await read(cluster.store, ONES_WORD) is None
            await conflicted(cluster.store, _write(held.fence))
            with pytest.raises(RegistrationLostError):
                await one.acknowledge(held, 2)
            assert await read(cluster.store, ONES_WORD) is None
            async with asyncio.timeout(PATIENCE_SECONDS):
                await losing
            await one.resign(held)

    async def test_the_stalled_vanish(self, cluster: MembershipCluster) -> None:
        """A stalled replica is invalid by its own clock before its records vanish, which they do
        without it; its late commits fail and its late word is refused (L01)."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            held, other = await _registered(one), await _registered(two)
            await one.acknowledge(held, 7)
            await cluster.stall(one)

            async def is_gone() -> bool:
                gone = await read(cluster.store, ONE) is None
                assert not (gone and one.is_valid(held))
                return gone

            await _advance_until(cluster, is_gone)
            assert await read(cluster.store, ONES_WORD) is None
            await conflicted(cluster.store, _write(held.fence))
            await cluster.resume(one)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await one.lost(held)
            assert not one.is_valid(held)
            with pytest.raises(RegistrationLostError):
                await one.acknowledge(held, 8)
            assert two.is_valid(other)
            assert await read(cluster.store, Key.replica("two")) is not None

    async def test_registering_again(self, cluster: MembershipCluster) -> None:
        """A replica that lost its registration makes a new one, with a larger epoch; nothing of
        the former one holds any more."""
        async with closing(cluster):
            one = await cluster.join("one")
            held = await _registered(one)
            await one.acknowledge(held, 5)
            await cluster.stall(one)

            async def is_lost() -> bool:
                return not one.is_valid(held)

            await _advance_until(cluster, is_lost)
            await cluster.resume(one)
            again = await _registered(one)
            assert again.epoch > held.epoch
            assert await read(cluster.store, ONES_WORD) is None
            with pytest.raises(RegistrationLostError):
                await one.acknowledge(held, 6)
            await conflicted(cluster.store, _write(held.fence))
            await one.resign(held)
            await one.acknowledge(again, 6)
            await cluster.advance(cluster.ttl * 2)
            assert one.is_valid(again)
            await committed(cluster.store, _write(again.fence))

    async def test_registered_epochs_grow(self, cluster: MembershipCluster) -> None:
        """Every registration of a replica has a larger epoch than all before."""
        async with closing(cluster):
            one = await cluster.join("one")
            epochs = []
            for _ in range(3):
                held = await _registered(one)
                epochs.append(held.epoch)
                await one.resign(held)
            assert epochs == sorted(set(epochs))

    async def test_a_name_is_not_taken_over(self, cluster: MembershipCluster) -> None:
        """A second process of the same name is refused while the first one is there."""
        async with closing(cluster):
            one, double = await cluster.join("one"), await cluster.join("one")
            held = await _registered(one)
            with pytest.raises(InstanceTakenError, match="one"):
                await _registered(double)
            assert one.is_valid(held)
            await committed(cluster.store, _write(held.fence))
            await one.resign(held)
            again = await _registered(double)
            assert again.epoch > held.epoch

    async def test_a_removed_record_is_noticed(self, cluster: MembershipCluster) -> None:
        """A replica whose record somebody removed knows of it soon, and may register again."""
        async with closing(cluster):
            one = await cluster.join("one")
            held = await _registered(one)
            await remove(cluster.store, ONE)
            await cluster.advance(cluster.ttl * 0.8)
            assert not one.is_valid(held)
            again = await _registered(one)
            assert again.epoch > held.epoch

    async def test_the_word_of_a_removed_one_is_refused(self, cluster: MembershipCluster) -> None:
        """No acknowledgement stands without its record."""
        async with closing(cluster):
            one = await cluster.join("one")
            held = await _registered(one)
            await remove(cluster.store, ONE)
            with pytest.raises(RegistrationLostError):
                await one.acknowledge(held, 1)
            assert await read(cluster.store, ONES_WORD) is None
            assert not one.is_valid(held)

    async def test_leads_and_registrations_are_apart(self, cluster: MembershipCluster) -> None:
        """The end of a lead leaves the registration alone, and the other way round."""
        async with closing(cluster):
            one = await cluster.join("one")
            held = await _registered(one)
            first = await one.campaign("e")
            await one.resign(first)
            assert one.is_valid(held)
            assert await read(cluster.store, ONE) is not None
            second = await one.campaign("e")
            await one.resign(held)
            assert one.is_valid(second)
            assert await one.leader("e") == "one"

    async def test_registering_cancelled_at_any_step(self, cluster: MembershipCluster) -> None:
        """A registration that is cancelled leaves no record, and is in nobody's way."""
        async with closing(cluster):
            one = await cluster.join("one")
            for turns in range(12):
                registering = asyncio.create_task(one.register(_record(one)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                registering.cancel()
                await asyncio.wait([registering])
                if not registering.cancelled():
                    await one.resign(registering.result())
                assert await read(cluster.store, ONE) is None
            assert one.is_valid(await _registered(one))

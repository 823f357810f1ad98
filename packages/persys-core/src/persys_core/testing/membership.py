"""Contract of Membership: elections under a lease, with a fence in the ClusterStore.

What is held of registrations stands in ``registrations`` and is part of it. Subclass
``MembershipContract`` and give it a ``cluster`` fixture that returns a ``MembershipCluster``. Time
passes by the cluster's ``advance``: virtual or real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation
from persys_core.ports.cluster_store import Key, Put
from persys_core.ports.membership import Leadership, Membership
from persys_core.testing.cluster_store_backend import (
    commit_of,
    committed,
    conflicted,
    expect,
    put,
    read,
)
from persys_core.testing.membership_cluster import (
    PATIENCE_SECONDS,
    STEPS_PER_TTL,
    MembershipCluster,
    closing,
)
from persys_core.testing.registrations import RegistrationContract

__all__ = ["MembershipCluster", "MembershipContract"]

ELECTION = "reconciler"
KEY = Key.allocation("n1")


async def _won(membership: Membership, election: str = ELECTION) -> Leadership:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await membership.campaign(election)


@asynccontextmanager
async def _campaign(membership: Membership) -> AsyncIterator[asyncio.Task[Leadership]]:
    """A campaign in the background, cancelled at the end of the block."""
    task = asyncio.create_task(membership.campaign(ELECTION))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _advance_until(cluster: MembershipCluster, task: asyncio.Task[Leadership]) -> Leadership:
    """Let time pass in small steps until ``task`` has won; three leases at most."""
    for _ in range(3 * STEPS_PER_TTL):
        if task.done():
            break
        await cluster.advance(cluster.ttl / STEPS_PER_TTL)
    assert task.done(), "nobody won within three leases"
    return task.result()


def _allocation(count: int) -> Allocation:
    return Allocation("n1", Resources.of(cpu_millicores=count), count)


@pytest.mark.asyncio
class MembershipContract(RegistrationContract):
    """Give it a ``cluster`` fixture. Every rule closes the cluster itself."""

    async def test_a_single_replica_leads(self, cluster: MembershipCluster) -> None:
        """Without rivals a campaign is won at once, and everybody is told who leads."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            assert await one.leader(ELECTION) == ""
            leadership = await _won(one)
            assert (leadership.election, leadership.instance_id) == (ELECTION, "one")
            assert one.instance_id == "one"
            assert one.is_valid(leadership)
            assert await one.leader(ELECTION) == await two.leader(ELECTION) == "one"

    async def test_a_lead_is_kept(self, cluster: MembershipCluster) -> None:
        """A replica that runs renews its lease: it leads over many leases, and no other does."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            leadership = await _won(one)
            async with _campaign(two) as rival:
                for _ in range(4 * STEPS_PER_TTL):
                    await cluster.advance(cluster.ttl / STEPS_PER_TTL)
                    assert one.is_valid(leadership)
                    assert not rival.done()

    async def test_elections_are_independent(self, cluster: MembershipCluster) -> None:
        """Different elections have leaders of their own."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            first, second = await _won(one, "shard-0"), await _won(two, "shard-1")
            assert one.is_valid(first)
            assert two.is_valid(second)
            assert await one.leader("shard-0") == "one"
            assert await one.leader("shard-1") == "two"

    async def test_the_epoch_is_the_fence(self, cluster: MembershipCluster) -> None:
        """The epoch is the creation revision of the leader's record, and commits may expect it."""
        async with closing(cluster):
            leadership = await _won(await cluster.join("one"))
            found = await read(cluster.store, leadership.fence.key)
            assert found is not None
            assert leadership.fence.create_revision == leadership.epoch == found.create_revision
            fenced = commit_of(Put(KEY, _allocation(1)), expects=[leadership.fence, expect(KEY, 0)])
            await committed(cluster.store, fenced)

    async def test_a_stalled_leader_knows_first(self, cluster: MembershipCluster) -> None:
        """A stalled holder is invalid by its own clock before another one wins (L01)."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            leadership = await _won(one)
            async with _campaign(two) as rival:
                await cluster.stall(one)
                for _ in range(3 * STEPS_PER_TTL):
                    assert not (one.is_valid(leadership) and rival.done())
                    if rival.done():
                        break
                    await cluster.advance(cluster.ttl / STEPS_PER_TTL)
                successor = rival.result()
                assert successor.instance_id == "two"
                await cluster.resume(one)
                assert not one.is_valid(leadership)
                assert two.is_valid(successor)

    async def test_epochs_grow(self, cluster: MembershipCluster) -> None:
        """Every lead has a larger epoch than all before, also the next one of the same replica."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            epochs = []
            for replica in (one, one, two, one):
                leadership = await _won(replica)
                epochs.append(leadership.epoch)
                await put(cluster.store, KEY, _allocation(len(epochs)))
                await replica.resign(leadership)
            assert epochs == sorted(set(epochs))

    async def test_the_deposed_cannot_write(self, cluster: MembershipCluster) -> None:
        """A commit of a leader that was paused past its lease fails on the fence (L01)."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            leadership = await _won(one)
            async with _campaign(two) as rival:
                await cluster.stall(one)
                successor = await _advance_until(cluster, rival)
            await cluster.resume(one)
            late = commit_of(Put(KEY, _allocation(1)), expects=[leadership.fence])
            await conflicted(cluster.store, late)
            assert await read(cluster.store, KEY) is None
            good = commit_of(Put(KEY, _allocation(1)), expects=[successor.fence])
            await committed(cluster.store, good)

    async def test_loss_is_told(self, cluster: MembershipCluster) -> None:
        """Whoever waits for the loss is woken when the lease has run out."""
        async with closing(cluster):
            one = await cluster.join("one")
            leadership = await _won(one)
            losing = asyncio.create_task(one.lost(leadership))
            await cluster.advance(cluster.ttl * 2)
            assert not losing.done()
            await cluster.stall(one)
            await cluster.advance(cluster.ttl * 2)
            await cluster.resume(one)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await losing
            assert not one.is_valid(leadership)

    async def test_resigning_hands_over_at_once(self, cluster: MembershipCluster) -> None:
        """The next one need not wait for the lease, and the old fence fails from then on."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            leadership = await _won(one)
            losing = asyncio.create_task(one.lost(leadership))
            async with _campaign(two) as rival:
                await cluster.advance(cluster.ttl / STEPS_PER_TTL)
                await one.resign(leadership)
                assert not one.is_valid(leadership)
                async with asyncio.timeout(cluster.ttl.total_seconds() / 2):
                    successor = await rival
                    await losing
                late = commit_of(Put(KEY, _allocation(1)), expects=[leadership.fence])
                await conflicted(cluster.store, late)
                assert two.is_valid(successor)

    async def test_resigning_twice_is_no_error(self, cluster: MembershipCluster) -> None:
        """Resigning what is lost already changes nothing for the leader of now."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            leadership = await _won(one)
            await one.resign(leadership)
            successor = await _won(two)
            await one.resign(leadership)
            assert two.is_valid(successor)
            assert await one.leader(ELECTION) == "two"

    async def test_nobody_leads_after_resigning(self, cluster: MembershipCluster) -> None:
        """Without a rival a resigned election has no leader, and no record of one."""
        async with closing(cluster):
            one = await cluster.join("one")
            leadership = await _won(one)
            await one.resign(leadership)
            assert await one.leader(ELECTION) == ""
            assert await read(cluster.store, leadership.fence.key) is None

    async def test_a_cancelled_campaign_leaves_no_trace(self, cluster: MembershipCluster) -> None:
        """A rival that gave up waiting never wins later, and blocks nobody."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            leadership = await _won(one)
            async with _campaign(two):
                await cluster.advance(cluster.ttl / STEPS_PER_TTL)
            await one.resign(leadership)
            await cluster.advance(cluster.ttl * 2)
            assert await one.leader(ELECTION) == ""
            again = await _won(one)
            assert again.epoch > leadership.epoch

    async def test_cancelled_at_any_step(self, cluster: MembershipCluster) -> None:
        """A campaign that is cancelled in the middle of winning does not lead afterwards."""
        async with closing(cluster):
            one, two = await cluster.join("one"), await cluster.join("two")
            for turns in range(12):
                campaign = asyncio.create_task(two.campaign(ELECTION))
                for _ in range(turns):
                    await asyncio.sleep(0)
                campaign.cancel()
                await asyncio.wait([campaign])
                if not campaign.cancelled():
                    await two.resign(campaign.result())
                assert await one.leader(ELECTION) == ""
            leadership = await _won(one)
            assert await two.leader(ELECTION) == "one"
            assert one.is_valid(leadership)

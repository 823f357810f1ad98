"""Replicas that join and leave in elastic mode, on a real etcd (short form of proofs.elastic)."""

import asyncio

import pytest

from proofs.elastic import Course, run
from tests.servers.etcd import EtcdCluster

pytestmark = pytest.mark.slow
TTL = 3.0


def test_no_change_of_replicas_gives_a_node_two_owners(etcd_alone: EtcdCluster) -> None:
    """Three replicas share a hundred nodes while others come and go, one of them without a word. A
    clean change does not wait for a lease, and a loss for no more than one."""
    course = Course(etcd_alone, nodes=100, ttl=TTL)
    asyncio.run(_whole(course))
    assert not course.doubles
    clean = [change.longest for change in course.changes if change.clean]
    lost = [change.longest for change in course.changes if not change.clean]
    assert clean
    assert lost
    assert max(clean) < TTL
    assert max(lost) < 2 * TTL


def test_a_map_that_nobody_can_read_is_made_anew(etcd_alone: EtcdCluster) -> None:
    """What replicas tell each other can be computed again, so junk there is replaced, and every
    node has its owner back."""
    course = Course(etcd_alone, nodes=10, ttl=TTL)

    async def spoiled() -> None:
        try:
            await course.prepare()
            await course.change("join")
            for key in (b"/persys/shards/map", b"/persys/evictions"):
                await course.replicas[0].client.put(key, b"not json")
            await course.change("join")
        finally:
            await course.stop()

    asyncio.run(spoiled())
    assert not course.doubles


async def _whole(course: Course) -> None:
    try:
        await run(course, seconds=12, every=1, members=3)
    finally:
        await course.stop()

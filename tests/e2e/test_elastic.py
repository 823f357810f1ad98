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


async def _whole(course: Course) -> None:
    try:
        await run(course, seconds=12, every=1, members=3)
    finally:
        await course.stop()

"""Replicas that join and leave in elastic mode, on a real etcd (short form of proofs.elastic)."""

import asyncio
import json
from pathlib import Path

import pytest

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from proofs.elastic import Course, run
from tests.e2e.etcd_cluster import at_work
from tests.e2e.processes import server
from tests.servers.etcd import EtcdCluster

pytestmark = pytest.mark.slow
TTL = 3.0
EVICTIONS = b"/persys/evictions"


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
            for key in (b"/persys/shards/map", EVICTIONS):
                await course.replicas[0].client.put(key, b"not json")
            await course.change("join")
        finally:
            await course.stop()

    asyncio.run(spoiled())
    assert not course.doubles


@pytest.mark.asyncio
async def test_a_pace_that_nobody_can_read_is_set_anew(
    etcd_alone: EtcdCluster, tmp_path: Path
) -> None:
    """Which lost nodes' work may move is told in a record of its own; junk there is replaced, and
    the work of a lost node moves."""
    async with (
        server(
            tmp_path,
            PERSYS_STORE="etcd",
            ETCD_ENDPOINTS=",".join(etcd_alone.endpoints),
            SCHEDULER_HA_MODE="elastic",
            SCHEDULER_NODE_UNAVAILABLE_GRACE="3s",
        ) as running,
        at_work(running.address) as (fleet, eye, _),
        EtcdClient(EtcdConfig(etcd_alone.endpoints)) as etcd,
    ):
        await etcd.put(EVICTIONS, b"not json")
        lost = next(view.assigned_node_id for view in eye.picture.workloads)
        await fleet.kill(lost)
        assert await eye.until(
            lambda seen: all(
                (view.status, view.assigned_node_id == lost) == ("Running", False)
                for view in seen.workloads
            ),
            40,
        )
        assert json.loads((await etcd.range(EVICTIONS)).kvs[0].value)


async def _whole(course: Course) -> None:
    try:
        await run(course, seconds=12, every=1, members=3)
    finally:
        await course.stop()

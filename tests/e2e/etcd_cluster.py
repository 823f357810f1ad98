"""A server on a real etcd with nodes at work, and what can be seen of it from outside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_adapters.etcd.cluster_store import EtcdClusterStore
from persys_core.ports.cluster_store import Key, Kind, Record, Versioned
from persys_core.sim.agent_journal import Happening
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.dev.picture import ClusterEye
from tests.e2e.processes import (
    Server,
    agents,
    client,
    container,
    ctl,
    quick_node,
    server,
    watching,
)
from tests.fleets.fleet import Fleet
from tests.servers.etcd import EtcdCluster

__all__ = [
    "LONGEST_CALL",
    "NODES",
    "WORK",
    "all_run",
    "at_work",
    "changes",
    "events",
    "mode",
    "on",
    "records",
    "until_mode",
]

NODES = ("n1", "n2", "n3")
WORK = tuple(f"w{number}" for number in range(6))
LONGEST_CALL = 3.0
CHANGES = (Happening.APPLY, Happening.DELETE, Happening.STOPPED, Happening.STARTED)
LASTING = (Kind.NODE, Kind.WORKLOAD, Kind.ASSIGNMENT, Kind.ALLOCATION, Kind.VOLUME)


def on(
    cluster: EtcdCluster,
    folder: Path,
    *,
    port: int = 0,
    orphans: str = "report",
    redis: str = "",
) -> AbstractAsyncContextManager[Server]:
    """A server on this etcd, and on this Redis if one is given."""
    return server(
        folder,
        port=port,
        PERSYS_STORE="etcd",
        ETCD_ENDPOINTS=",".join(cluster.endpoints),
        SCHEDULER_ORPHAN_POLICY=orphans,
        REDIS_ADDR=redis,
        SCHEDULER_DRIFT_DETECT_INTERVAL="1s",
    )


def changes(fleet: Fleet) -> int:
    """How often agents were asked to change something, or did."""
    return sum(
        entry.what in CHANGES
        for node in fleet.nodes()
        for entry in fleet.model(node.node_id).journal.entries
    )


async def records(cluster: EtcdCluster) -> dict[Key, Versioned[Record]]:
    """What lasts of the cluster, as it stands in etcd."""
    async with EtcdClient(EtcdConfig(cluster.endpoints)) as etcd:
        snapshot = await EtcdClusterStore(etcd).snapshot()
    return {key: found for key, found in snapshot.records.items() if key.kind in LASTING}


async def mode(address: str) -> str:
    """The operating mode, as an operator sees it."""
    shown = json.loads((await ctl(address, "summary", "-o", "json")).out)
    found: str = shown["mode"]
    return found


async def until_mode(address: str, wanted: str, seconds: float = 30) -> None:
    """Wait for it."""
    async with asyncio.timeout(seconds):
        while await mode(address) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def events(
    stub: control_pb2_grpc.AgentControlAsyncStub, kind: str
) -> list[pb.SchedulerEventView]:
    """What was told of that kind."""
    answer = await stub.ListEvents(pb.ListEventsRequest(type=kind), timeout=5)
    return list(answer.events)


@asynccontextmanager
async def at_work(
    address: str,
) -> AsyncIterator[tuple[Fleet, ClusterEye, control_pb2_grpc.AgentControlAsyncStub]]:
    """Three nodes that run six workloads."""
    nodes = [quick_node(name) for name in NODES]
    async with agents(address, *nodes) as fleet, watching(address) as eye, client(address) as stub:
        assert await eye.until(
            lambda seen: [node.status for node in seen.nodes] == ["Ready"] * len(NODES), 20
        )
        for name in WORK:
            await stub.ApplyWorkload(container(name), timeout=5)
        assert await all_run(eye, len(WORK))
        yield fleet, eye, stub


async def all_run(eye: ClusterEye, count: int, seconds: float = 30) -> bool:
    """Wait until so many workloads are there and run."""
    return await eye.until(
        lambda seen: [view.status for view in seen.workloads] == ["Running"] * count, seconds
    )

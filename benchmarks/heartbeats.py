"""Heartbeats: how many one replica serves on a real etcd, beside what gRPC alone would take.

`python -m benchmarks.heartbeats [--nodes 5000] [--per-node 20]` prints lines of
`name value unit size…`. A `persys-server run` on an etcd of its own has the nodes and their
workloads; this process beats for them, 64 calls at a time: empty beats, and beats with a status and
the usage of every workload of the node. Both processes share the machine. The ratio compares with a
server that answers the same messages and does nothing. Goals: P4 (beats) and P8 (start to serving).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from attrs import evolve

from benchmarks.placement import report
from benchmarks.steady_cluster import Size, build, node_id, reports_of
from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_adapters.etcd.cluster_store import EtcdClusterStore
from persys_core.model.node import Node
from persys_core.ports.cluster_store import (
    MAX_COMMIT_OPERATIONS,
    Commit,
    Key,
    Put,
    Record,
)
from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from tests.e2e.processes import Server, server
from tests.servers.etcd import run_single

__all__ = ["main"]

IN_FLIGHT = 64
SECONDS = 10.0
READY_SECONDS = 180.0
COMMITS_AT_ONCE = 16
WARM_UPS = 8

Beat = Callable[[int], pb.HeartbeatRequest]


async def fill(endpoint: str, size: Size, agent: str) -> None:
    """Write the cluster into etcd, as a scheduler that placed it would have; ``agent``: where all
    the nodes' agents are said to be."""
    async with EtcdClient(EtcdConfig((endpoint,))) as client:
        store = EtcdClusterStore(client)
        records = build(size, [agent] * size.nodes).snapshot().records
        first = {key: records[key] for key in (Key.marker(), Key.ledger())}
        await _put(store, [(key, found.value) for key, found in first.items()])
        marker = (await store.get([Key.marker()]))[Key.marker()]
        assert marker is not None
        rest = [
            (key, _listed(found.value, marker.create_revision))
            for key, found in records.items()
            if key not in first
        ]
        turns = asyncio.Semaphore(COMMITS_AT_ONCE)

        async def put(part: Sequence[tuple[Key, Record]]) -> None:
            async with turns:
                await _put(store, part)

        await asyncio.gather(*map(put, _parts(rest)))


async def _put(store: EtcdClusterStore, records: Sequence[tuple[Key, Record]]) -> None:
    writes = tuple(Put(key, value) for key, value in records)
    await store.commit(Commit((), writes, f"fill-{records[0][0]}"))


def _listed(record: Record, life: int) -> Record:
    return evolve(record, listed_under=life) if isinstance(record, Node) else record


def empty(number: int) -> pb.HeartbeatRequest:
    """A beat with the node's usage alone."""
    beat = pb.HeartbeatRequest(node_id=node_id(number))
    beat.usage.cpu_used_millicores = 4000
    beat.usage.memory_used_mb = 16_000
    beat.timestamp.GetCurrentTime()
    return beat


def full(per_node: int) -> Beat:
    """Beats with a status and the usage of each workload."""

    def beat(number: int) -> pb.HeartbeatRequest:
        made = empty(number)
        for each in reports_of(number, per_node):
            status = made.workload_statuses.add(
                workload_id=each.workload_id,
                state="running",
                message=each.message,
                revision_id=each.revision_id,
            )
            status.usage.workload_id = each.workload_id
            status.usage.cpu_percent = 12.5
            status.usage.memory_bytes = 64 << 20
            status.usage.collected_at.GetCurrentTime()
        return made

    return beat


async def beats_per_second(address: str, nodes: int, beat: Beat) -> float:
    """Served beats of all nodes in turn; the longest wait is told on the way."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = agent_control_stub(channel)
        turns = itertools.cycle(range(nodes))
        until = time.monotonic() + SECONDS
        served = 0

        async def worker() -> None:
            nonlocal served
            while time.monotonic() < until:
                answer = await stub.Heartbeat(beat(next(turns)), timeout=10)
                assert answer.acknowledged, answer
                served += 1

        began = time.monotonic()
        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
        return served / (time.monotonic() - began)


class BareServicer(control_pb2_grpc.AgentControlServicer):
    """Acknowledges every beat and does nothing."""

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.HeartbeatResponse:
        """Yes."""
        return pb.HeartbeatResponse(acknowledged=True)


async def serve_bare() -> None:
    """The server of the comparison, until standard input ends."""
    bare = grpc.aio.server()
    control_pb2_grpc.add_AgentControlServicer_to_server(BareServicer(), bare)
    port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await bare.stop(None)


@asynccontextmanager
async def bare_server() -> AsyncIterator[str]:
    """Its address; it ends with the context."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.heartbeats", "--bare"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def revision_of(endpoint: str) -> int:
    """Where etcd stands."""
    async with EtcdClient(EtcdConfig((endpoint,))) as client:
        return (await client.range(b"/", keys_only=True)).revision


async def measure(size: Size) -> None:
    """Everything, one after the other."""
    sizes = {"nodes": size.nodes, "workloads": size.workloads}
    kinds = {"empty": empty, f"{size.per_node}_statuses": full(size.per_node)}
    async with bare_server() as bare:
        rates = {
            name: await beats_per_second(bare, size.nodes, beat) for name, beat in kinds.items()
        }
        with tempfile.TemporaryDirectory() as folder, run_single(Path(folder)) as etcd:
            [endpoint] = etcd.endpoints
            await fill(endpoint, size, bare)
            began = time.monotonic()
            async with _quiet_server(folder, endpoint) as running:
                report("P8_start_to_serving", time.monotonic() - began, "s", **sizes)
                before = await _settled(endpoint, running.address, size)
                for name, beat in kinds.items():
                    rate = await beats_per_second(running.address, size.nodes, beat)
                    report(f"P4_heartbeats_{name}", rate, "1/s", **sizes)
                    ratio = rate / rates[name]
                    report(f"P4_heartbeats_{name}_of_bare_grpc", ratio, "ratio", **sizes)
                moved = await revision_of(endpoint) - before
                report("P4_heartbeats_revisions", moved, "revisions", **sizes)


def _quiet_server(folder: str, endpoint: str) -> AbstractAsyncContextManager[Server]:
    """A server that does nothing but what beats ask for."""
    return server(
        Path(folder),
        ready_seconds=READY_SECONDS,
        PERSYS_STORE="etcd",
        ETCD_ENDPOINTS=endpoint,
        SCHEDULER_HEARTBEAT_INTERVAL="60s",
        SCHEDULER_NODE_UNAVAILABLE_GRACE="1h",
        SCHEDULER_RECONCILE_INTERVAL="1h",
        SCHEDULER_DRIFT_DETECT_INTERVAL="1h",
    )


async def _settled(endpoint: str, address: str, size: Size) -> int:
    """Beat until every node has its lease and nothing is written any more; the revision then."""
    before = await revision_of(endpoint)
    for _ in range(WARM_UPS):
        await beats_per_second(address, size.nodes, empty)
        after = await revision_of(endpoint)
        if after == before:
            break
        before = after
    return before


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--per-node", type=int, default=20)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    asyncio.run(serve_bare() if given.bare else measure(Size(given.nodes, given.per_node)))


def _parts(records: Sequence[tuple[Key, Record]]) -> Iterator[Sequence[tuple[Key, Record]]]:
    return (
        records[first : first + MAX_COMMIT_OPERATIONS]
        for first in range(0, len(records), MAX_COMMIT_OPERATIONS)
    )


if __name__ == "__main__":
    main()

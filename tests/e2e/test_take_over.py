"""A cluster of the reference in a real etcd is taken over in place, by a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve

from persys_adapters.etcd.client import EtcdClient, EtcdConfig, Put
from persys_adapters.records.codec import decode
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.model.workload import Workload
from persys_core.ports.agents import ApplyRequest
from persys_core.ports.cluster_store import Key
from persys_core.sim.agent_settings import AgentSettings, Latency, existing_agent
from persys_proto.control.v1 import control_pb2 as pb
from tests.corpus import reference_etcd as reference
from tests.e2e.etcd_cluster import changes, mode, on
from tests.e2e.processes import agents, client, eventually, free_port, watching
from tests.fleets.fleet import Fleet
from tests.servers.etcd import EtcdCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.simulated("agents of the field that the reference gave their work"),
]

QUICK = Latency.of(0.01)
DELETED = ("web", "old-web", "both", "logs")
"""One of each layout, and one whose record is huge."""


def machine(node_id: str) -> AgentSettings:
    """An agent as it runs in the field, on a machine that is quick."""
    return evolve(
        existing_agent(node_id),
        pickup=QUICK,
        create=QUICK,
        start=QUICK,
        stop=QUICK,
        delete=QUICK,
        workload_types=frozenset(WorkloadType),
        cpu_millicores=32_000,
        queue_depth=99,
    )


async def fill(etcd: EtcdCluster, keys: Mapping[bytes, bytes]) -> None:
    """Put every key as it is."""
    async with EtcdClient(EtcdConfig(etcd.endpoints)) as filling:
        for key, value in keys.items():
            await filling.txn([], [Put(key, value)])


async def keys_in(etcd: EtcdCluster) -> dict[bytes, bytes]:
    """What stands in etcd."""
    async with EtcdClient(EtcdConfig(etcd.endpoints)) as reading:
        pages = [page async for page in reading.pages(b"/", b"0")]
    return {kv.key: kv.value for page in pages for kv in page.kvs}


def request(keys: Mapping[bytes, bytes], workload_id: str, desired: DesiredState) -> ApplyRequest:
    """What the reference sent once."""
    places = (f"/workloads-spec/{workload_id}", f"/workloads/{workload_id}")
    raw = next(keys[path.encode()] for path in places if path.encode() in keys)
    workload = decode(Key.workload(workload_id), raw).record
    assert isinstance(workload, Workload)
    return ApplyRequest(workload_id, workload.revision_id, desired, workload.spec, 0)


async def run_everything(fleet: Fleet, keys: Mapping[bytes, bytes]) -> None:
    """Have every machine run what the reference had it run."""
    for node_id, ids in reference.RUNNING.items():
        for workload_id in ids:
            wanted = request(keys, workload_id, DesiredState.RUNNING)
            fleet.model(node_id).apply(wanted, datetime.now(UTC))
    for node_id, ids in reference.STOPPED.items():
        for workload_id in ids:
            wanted = request(keys, workload_id, DesiredState.STOPPED)
            fleet.model(node_id).apply(wanted, datetime.now(UTC))

    def all_run() -> bool:
        now = datetime.now(UTC)
        return all(
            fleet.model(node_id).running(now).keys() == set(ids)
            for node_id, ids in reference.RUNNING.items()
        )

    await eventually(all_run, "the machines run what the reference left")
    for node_id in reference.RUNNING:
        fleet.model(node_id).journal.entries.clear()


async def without(etcd: EtcdCluster, workload_ids: Sequence[str]) -> dict[bytes, bytes]:
    """What stands in etcd once nothing of these is left; drifts go with the next look at them."""
    async with asyncio.timeout(20):
        while True:
            left = await keys_in(etcd)
            if not any(reference.keys_of(left, each) for each in workload_ids):
                return left
            await asyncio.sleep(0.2)


@pytest.mark.asyncio
async def test_a_filled_etcd_is_taken_over_in_place(
    etcd_alone: EtcdCluster, tmp_path: Path
) -> None:
    """Everything is listed and runs where it ran, no agent is told anything about it, unreadable
    records stay as they are, and deleting leaves no key behind (U01)."""
    keys = reference.corpus()
    await fill(etcd_alone, keys)
    port = free_port()
    everything = {each for ids in reference.RUNNING.values() for each in ids}
    nodes = [machine(node_id) for node_id in sorted(reference.RUNNING)]
    async with agents(f"127.0.0.1:{port}", *nodes) as fleet:
        await run_everything(fleet, keys)
        async with (
            on(etcd_alone, tmp_path, port=port) as running,
            watching(running.address) as eye,
            client(running.address) as stub,
        ):
            assert await eye.until(
                lambda seen: (
                    {view.workload_id for view in seen.workloads if view.status == "Running"}
                    >= everything
                ),
                40,
            ), sorted(
                f"{view.workload_id} {view.status}"
                for view in eye.picture.workloads
                if view.status != "Running"
            )
            assert await mode(running.address) == "normal"
            touched = {
                entry.workload_id
                for node in fleet.nodes()
                for entry in fleet.model(node.node_id).journal.entries
                if entry.what.value in ("apply", "delete", "stopped", "started", "removed")
            }
            assert touched & everything == set()
            before = changes(fleet)
            for workload_id in DELETED:
                await stub.DeleteWorkload(
                    pb.DeleteWorkloadRequest(workload_id=workload_id), timeout=5
                )
            assert await eye.until(
                lambda seen: not {view.workload_id for view in seen.workloads} & set(DELETED), 30
            )
            assert changes(fleet) > before
            left = await without(etcd_alone, DELETED)
            for path in reference.QUARANTINED:
                assert left[path.encode()] == keys[path.encode()]

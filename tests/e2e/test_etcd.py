"""The server on a real etcd: what users run, and what they fear."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_adapters.etcd.cluster_store import EtcdClusterStore
from persys_agent.simulated.fleet import SimulatedFleet
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
    eventually,
    quick_node,
    server,
    watching,
)
from tests.servers.etcd import EtcdCluster, etcd_binary, run_single

pytestmark = pytest.mark.slow

NODES = ("n1", "n2", "n3")
WORK = tuple(f"w{number}" for number in range(6))
LONGEST_CALL = 3.0
CHANGES = (Happening.APPLY, Happening.DELETE, Happening.STOPPED, Happening.STARTED)
LASTING = (Kind.NODE, Kind.WORKLOAD, Kind.ASSIGNMENT, Kind.ALLOCATION, Kind.VOLUME)


def on(
    cluster: EtcdCluster, folder: Path, *, port: int = 0, orphans: str = "report"
) -> AbstractAsyncContextManager[Server]:
    """A server on this etcd."""
    return server(
        folder,
        port=port,
        PERSYS_STORE="etcd",
        ETCD_ENDPOINTS=",".join(cluster.endpoints),
        SCHEDULER_ORPHAN_POLICY=orphans,
    )


def changes(fleet: SimulatedFleet) -> int:
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
) -> AsyncIterator[tuple[SimulatedFleet, ClusterEye, control_pb2_grpc.AgentControlAsyncStub]]:
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


@pytest.mark.asyncio
async def test_a_steady_cluster_moves_no_revision_and_survives_its_server(
    etcd_alone: EtcdCluster, tmp_path: Path
) -> None:
    """Heartbeats, passes and listings write nothing (E05); after SIGKILL the next server takes all
    over, restarts nothing, and a delete leaves no key of the workload."""
    async with on(etcd_alone, tmp_path) as first, at_work(first.address) as (fleet, _, _):
        before, settled = changes(fleet), await records(etcd_alone)
        async with EtcdClient(EtcdConfig(etcd_alone.endpoints)) as etcd:
            await asyncio.sleep(1)
            revision = (await etcd.range(b"x")).revision
            await asyncio.sleep(5)
            assert (await etcd.range(b"x")).revision == revision
        first.signal(signal.SIGKILL)
        await first.ended()
        async with (
            on(etcd_alone, tmp_path, port=first.port) as second,
            watching(second.address) as eye,
            client(second.address) as stub,
        ):
            assert await all_run(eye, len(WORK))
            await until_mode(second.address, "normal")
            assert changes(fleet) == before
            assert await records(etcd_alone) == settled
            await stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="w0"), timeout=5)
            assert await all_run(eye, len(WORK) - 1)
        left = etcd_alone.ctl("get", "/", "--prefix", "--keys-only")
        assert "w0" not in left
        assert "w1" in left


@pytest.mark.parametrize("fault", ["kill", "pause"])
@pytest.mark.asyncio
async def test_one_of_three_members_away_is_hardly_noticed(
    etcd_cluster: EtcdCluster, tmp_path: Path, fault: str
) -> None:
    """Killed or hung, leader or not: no call takes longer than 3 s, no node is lost, and what is
    applied meanwhile runs."""
    async with (
        on(etcd_cluster, tmp_path) as running,
        at_work(running.address) as (fleet, eye, stub),
    ):
        before = changes(fleet)
        for turn, member in enumerate(etcd_cluster.members):
            getattr(member, fault)()
            until = asyncio.get_running_loop().time() + 4
            number = 0
            while asyncio.get_running_loop().time() < until:
                name = f"x{turn}-{number}"
                await stub.ApplyWorkload(container(name), timeout=LONGEST_CALL)
                await stub.ListNodes(pb.ListNodesRequest(), timeout=LONGEST_CALL)
                number += 1
                await asyncio.sleep(0.3)
            member.resume() if fault == "pause" else member.restart()
        applied = len((await stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=5)).workloads)
        assert await all_run(eye, applied), running.text
        assert await events(stub, "NodeLost") == []
        assert await mode(running.address) == "normal"
        assert changes(fleet) > before


@pytest.mark.asyncio
async def test_etcd_away_is_a_freeze_and_nothing_more(
    etcd_cluster: EtcdCluster, tmp_path: Path
) -> None:
    """Every member down under load: degraded, reads from the cache with their age, wishes refused,
    nothing that runs is touched and no record changes; back to normal by itself (E09, L03)."""
    async with (
        on(etcd_cluster, tmp_path) as running,
        at_work(running.address) as (fleet, eye, stub),
    ):
        before, settled = changes(fleet), await records(etcd_cluster)
        for member in etcd_cluster.members:
            member.kill()
        await until_mode(running.address, "degraded")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ApplyWorkload(container("no"), timeout=5)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        shown = await stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=5)
        assert len(shown.workloads) == len(WORK)
        for member in etcd_cluster.members:
            member.start()
        for member in etcd_cluster.members:
            member.wait_ready()
        await until_mode(running.address, "normal")
        assert changes(fleet) == before
        assert await records(etcd_cluster) == settled
        assert await eye.until(
            lambda seen: [node.status for node in seen.nodes] == ["Ready"] * len(NODES), 20
        )
        await stub.ApplyWorkload(container("yes"), timeout=5)
        assert await all_run(eye, len(WORK) + 1)
        assert await events(stub, "NodeLost") == []


@pytest.mark.asyncio
async def test_a_full_etcd_takes_removals_and_recovers(tmp_path: Path) -> None:
    """E05: out of space is told as that, reads are served, what no node runs can be removed while
    the alarm stands, and once there is space the server goes on by itself. (This etcd, 3.5.1, takes
    no removal either while its file is larger than the quota; later ones do.)"""
    with run_single(tmp_path / "etcd", options=("--quota-backend-bytes", "2000000")) as etcd:
        async with on(etcd, tmp_path) as running, at_work(running.address) as (fleet, eye, stub):
            await stub.ApplyWorkload(container("large", cpu=1_000_000), timeout=5)
            before = changes(fleet)
            await fill_up(etcd)
            await eventually_refused(stub)
            await until_mode(running.address, "degraded")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.ApplyWorkload(container("no"), timeout=5)
            assert "space" in str(refused.value.details())
            etcd.ctl("del", "/filler", "--prefix")
            status = json.loads(etcd.ctl("endpoint", "status", "-w", "json"))
            etcd.ctl("compact", str(status[0]["Status"]["header"]["revision"]))
            etcd.ctl("defrag")
            assert "NOSPACE" in etcd.ctl("alarm", "list")
            await stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="large"), timeout=5)
            assert await mode(running.address) == "degraded"
            etcd.ctl("alarm", "disarm")
            await until_mode(running.address, "normal")
            assert changes(fleet) == before
            await stub.ApplyWorkload(container("yes"), timeout=5)
            assert await all_run(eye, len(WORK) + 1)


async def fill_up(etcd: EtcdCluster) -> None:
    """Write until there is no space."""
    for number in range(40):
        value = "x" * 100_000
        done = await asyncio.to_thread(_put, etcd, f"/filler/{number}", value)
        if not done:
            return
    raise AssertionError("the quota was not reached")


def _put(etcd: EtcdCluster, key: str, value: str) -> bool:
    done = subprocess.run(
        [str(etcd_binary("etcdctl")), "--endpoints", etcd.endpoints[0], "put", key, value],
        capture_output=True,
        check=False,
        text=True,
    )
    assert not done.returncode or "space" in done.stderr, done.stderr
    return not done.returncode


async def eventually_refused(stub: control_pb2_grpc.AgentControlAsyncStub) -> None:
    """The first write that meets the limit is told."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.ApplyWorkload(container("first"), timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def restore(etcd: EtcdCluster, saved: Path) -> None:
    """Replace the data of the only member by a backup, as an operator would."""
    [member] = etcd.members
    folder = Path(member.command[member.command.index("--data-dir") + 1])
    shutil.rmtree(folder)
    peer = member.command[member.command.index("--initial-advertise-peer-urls") + 1]
    subprocess.run(
        [
            str(etcd_binary("etcdutl")),
            *("snapshot", "restore", str(saved), "--data-dir", str(folder)),
            *("--name", member.name, "--initial-cluster", f"{member.name}={peer}"),
            *("--initial-advertise-peer-urls", peer),
            *("--initial-cluster-token", etcd.folder.name),
        ],
        check=True,
        capture_output=True,
    )


@pytest.mark.asyncio
async def test_a_restored_backup_is_recovery_until_somebody_says_so(
    etcd_alone: EtcdCluster, tmp_path: Path
) -> None:
    """E03: etcd goes back to an older state under a running server: recovery, StoreRewound with
    both revisions, no agent is told anything; an acknowledgement takes the store as it is."""
    saved = tmp_path / "backup.db"
    async with (
        on(etcd_alone, tmp_path) as running,
        at_work(running.address) as (fleet, _, stub),
    ):
        etcd_alone.ctl("snapshot", "save", str(saved))
        for number in range(5):
            await stub.ApplyWorkload(container(f"later{number}"), timeout=5)
        await all_settled(fleet, len(WORK) + 5)
        before = changes(fleet)
        etcd_alone.members[0].kill()
        restore(etcd_alone, saved)
        etcd_alone.members[0].start()
        etcd_alone.members[0].wait_ready()
        await until_mode(running.address, "recovery")
        [told] = await events(stub, "StoreRewound")
        assert int(told.details["from"]) > int(told.details["to"])
        await asyncio.sleep(1)
        assert changes(fleet) == before


async def all_settled(fleet: SimulatedFleet, count: int) -> None:
    """Wait until so many workloads were started."""

    def started() -> bool:
        return count <= sum(
            entry.what is Happening.STARTED
            for node in fleet.nodes()
            for entry in fleet.model(node.node_id).journal.entries
        )

    await eventually(started, f"{count} starts")


@pytest.mark.asyncio
async def test_an_emptied_etcd_is_never_a_wish_to_delete(
    etcd_alone: EtcdCluster, tmp_path: Path
) -> None:
    """E04: the data folder of etcd is gone under a running server: recovery, nothing is told to the
    agents, and an import brings the records back."""
    async with (
        on(etcd_alone, tmp_path, orphans="delete") as running,
        at_work(running.address) as (fleet, eye, _),
    ):
        before = changes(fleet)
        [member] = etcd_alone.members
        member.kill()
        shutil.rmtree(member.command[member.command.index("--data-dir") + 1])
        member.start()
        member.wait_ready()
        await until_mode(running.address, "recovery")
        await until_listed(running.address)
        done = await ctl(running.address, "import", "--reason", "disk lost", "--yes")
        assert done.code == 0, done.err
        await until_mode(running.address, "normal")
        assert await all_run(eye, len(WORK))
        assert changes(fleet) == before
        assert {key.id for key in await records(etcd_alone) if key.kind is Kind.WORKLOAD} == set(
            WORK
        )


async def until_listed(address: str) -> None:
    """Wait until every node has presented itself."""
    found: Callable[[str], object] = json.loads
    for _ in range(60):
        dry = await ctl(address, "import", "--dry-run", "-o", "json")
        if dry.code == 0:
            shown = found(dry.out)
            assert isinstance(shown, dict)
            if shown.get("nodesListed") == len(NODES):
                return
    raise AssertionError("not all nodes presented themselves")

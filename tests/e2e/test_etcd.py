"""The server on a real etcd: what users run, and what they fear."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_core.ports.cluster_store import Kind
from persys_core.sim.agent_journal import Happening
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from tests.e2e.etcd_cluster import (
    LONGEST_CALL,
    NODES,
    WORK,
    all_run,
    at_work,
    changes,
    events,
    mode,
    on,
    records,
    until_mode,
)
from tests.e2e.processes import client, container, ctl, eventually, watching
from tests.fleets.fleet import Fleet
from tests.servers.etcd import EtcdCluster, etcd_binary, run_single
from tests.servers.redis import redis_server

pytestmark = pytest.mark.slow


@pytest.mark.asyncio
async def test_with_redis_nothing_is_written_either(
    etcd_alone: EtcdCluster, tmp_path: Path
) -> None:
    """Usage, outcomes and events go to Redis: etcd stands still while nodes beat with them. Without
    Redis the flood does not move to etcd either (K04): only changed outcomes do, as documented."""
    async with (
        redis_server(tmp_path / "redis") as redis,
        on(etcd_alone, tmp_path, redis=f"127.0.0.1:{redis.port}") as running,
        at_work(running.address) as (_, _, stub),
        EtcdClient(EtcdConfig(etcd_alone.endpoints)) as etcd,
    ):
        await asyncio.sleep(1)
        revision = (await etcd.range(b"x")).revision
        await asyncio.sleep(4)
        assert (await etcd.range(b"x")).revision == revision
        assert await events(stub, "WorkloadScheduled")
        async with redis.client() as asked:
            assert await asked.exists("scheduler:events")
            assert await asked.keys("persys:usage:node:*")
        await redis.kill()
        revision = (await etcd.range(b"x")).revision
        await asyncio.sleep(4)
        # Outcomes that Redis cannot take go to etcd once per change, and nothing changes here.
        assert (await etcd.range(b"x")).revision - revision <= len(WORK)
        await stub.ApplyWorkload(container("meanwhile"), timeout=LONGEST_CALL)
        await eventually_kept(etcd, "/reconciliation/meanwhile")


async def eventually_kept(etcd: EtcdClient, key: str) -> None:
    """Wait until something stands there."""
    async with asyncio.timeout(20):
        while not (await etcd.range(key.encode())).kvs:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


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
            # A node that was silent for a moment confirms later, and owes the delete until then.
            await eventually(
                lambda: "w0" not in etcd_alone.ctl("get", "/", "--prefix", "--keys-only"),
                "no key of the workload is left",
                20,
            )
        assert "w1" in etcd_alone.ctl("get", "/", "--prefix", "--keys-only")


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
        async with EtcdClient(EtcdConfig(etcd_alone.endpoints)) as etcd:
            for _ in range(300):
                await etcd.put(b"/someone/else", b"x")
        await asyncio.sleep(4)
        # It counts further than it ever did; that makes nothing whole.
        assert await mode(running.address) == "recovery"
        assert changes(fleet) == before
        done = await ctl(
            running.address, "acknowledge-empty", "--reason", "the backup is good", "--yes"
        )
        assert done.code == 0, done.err
        await until_mode(running.address, "normal")
        shown = await stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=5)
        assert {view.workload_id for view in shown.workloads} == set(WORK)
        removed = {Happening.DELETE, Happening.STOPPED}
        assert not any(
            entry.what in removed
            for node in fleet.nodes()
            for entry in fleet.model(node.node_id).journal.entries
        )


async def all_settled(fleet: Fleet, count: int) -> None:
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

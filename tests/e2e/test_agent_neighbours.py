"""Two agents with twenty containers on one Docker daemon, and a scheduler on a real etcd: what goes
away comes back, and nobody's container is touched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from persys_proto.agent.v1 import agent_pb2 as agent
from persys_proto.control.v1 import control_pb2 as pb
from tests.e2e.agents import identities, shell
from tests.e2e.etcd_cluster import on, records
from tests.e2e.processes import eventually
from tests.e2e.real_cluster import Cluster, cluster_of
from tests.servers.dockerd import IMAGE, Dockerd, run_dockerd
from tests.servers.etcd import EtcdCluster, run_single

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

WORK = {node: tuple(f"{node}-w{number}" for number in range(10)) for node in ("a", "b")}
WORKERS = "4"
LEASE_SECONDS = 3
"""Of the leader and of the nodes."""
ALL = tuple(name for names in WORK.values() for name in names)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Dockerd]:
    """The daemon that both agents use."""
    with run_dockerd() as running:
        yield running


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """The store."""
    with run_single(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    daemon: Dockerd, etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """Ten containers on each of two nodes."""
    folder = tmp_path_factory.mktemp("neighbours")
    async with (
        on(etcd, folder) as running,
        cluster_of(running, {"a": daemon, "b": daemon}, PERSYS_TASK_WORKERS=WORKERS) as made,
    ):
        for node, names in WORK.items():
            await made.apply(*(_pinned(name, node) for name in names))
        await made.all_run(*ALL, seconds=60)
        yield made


def _pinned(name: str, node: str) -> pb.ApplyWorkloadRequest:
    request = shell(name)
    other = next(each for each in WORK if each != node)
    request.spec.metadata["persys.scheduling.exclude_nodes"] = other
    return request


async def test_the_store_away_touches_no_container(
    cluster: Cluster, daemon: Dockerd, etcd: EtcdCluster
) -> None:
    """E09: twenty containers run, the store goes down, for longer than all leases last, and comes
    back with the same data: no container is started anew, no agent is told anything, no record
    changes. (``test_etcd`` waits for the mode *degraded*, with `--agents docker` too.)"""
    await cluster.ready("a", "b")
    before, settled = await identities(daemon), await records(etcd)
    asked = [await each.asked() for each in cluster.agents.values()]
    assert len(before) == len(ALL)
    etcd.members[0].kill()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await cluster.stub.ApplyWorkload(shell("no"), timeout=20)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await asyncio.sleep(LEASE_SECONDS + 2)
    etcd.members[0].restart()
    await asyncio.gather(*map(cluster.beats_again, cluster.agents))
    await cluster.until_mode("normal")
    assert await identities(daemon) == before
    assert [await each.asked() for each in cluster.agents.values()] == asked
    assert await records(etcd) == settled
    assert {view.status for view in cluster.eye.picture.workloads} == {"Running"}


async def test_an_agent_that_was_killed_finds_its_containers(
    cluster: Cluster, daemon: Dockerd, record_property: Callable[[str, object], None]
) -> None:
    """SIGKILL and a new start: every container is the one that ran, and nobody was told to do
    anything."""
    before, told = await identities(daemon), await cluster.agents["a"].asked()
    await cluster.agents["a"].kill()
    began = time.monotonic()
    await cluster.agents["a"].start()
    await cluster.beats_again("a", beats=0)
    record_property("agent_restart_to_ready_seconds", round(time.monotonic() - began, 2))
    await cluster.beats_again("a")
    assert await identities(daemon) == before
    assert await cluster.agents["a"].asked() == told, "the history outlived it, nothing was added"
    assert all(cluster.status(name) == "Running" for name in WORK["a"])


async def test_what_was_accepted_is_carried_out_after_a_kill(
    cluster: Cluster, daemon: Dockerd, record_property: Callable[[str, object], None]
) -> None:
    """More applies than the agent has workers are accepted, and it is killed at once: after its
    new start all of them run, each made once."""
    names = [f"late-{number}" for number in range(8)]
    killed = cluster.agents["b"]
    answers = await asyncio.gather(*(killed.call("ApplyWorkload", _told(name)) for name in names))
    await killed.kill()
    assert all(each.applied for each in answers)
    await killed.start()
    await eventually(lambda: set(names) <= _running(daemon), "all of them run", 40)
    before = {name: each for name, each in (await identities(daemon)).items() if name in names}
    deleted = [
        killed.call("DeleteWorkload", agent.DeleteWorkloadRequest(id=each)) for each in names
    ]
    assert len(before) == len(names)
    assert all(each.success for each in await asyncio.gather(*deleted))
    await eventually(lambda: not set(names) & set(daemon.containers()), "they are gone", 40)


def _told(name: str) -> agent.ApplyWorkloadRequest:
    body = agent.ContainerSpec(image=IMAGE, command=["sleep", "600"])
    return agent.ApplyWorkloadRequest(
        id=name,
        type=agent.WORKLOAD_TYPE_CONTAINER,
        revision_id="r1",
        desired_state=agent.DESIRED_STATE_RUNNING,
        spec=agent.WorkloadSpec(container=body),
    )


def _running(daemon: Dockerd) -> set[str]:
    shown = daemon.containers()
    return {name for name, each in shown.items() if each["State"]["Running"]}


async def test_an_agent_that_lost_its_state_is_told_of_what_runs(
    cluster: Cluster, daemon: Dockerd, record_property: Callable[[str, object], None]
) -> None:
    """Its database is removed: every container is the one that ran, each is told to the agent once
    and taken over as it is, and the scheduler shows them Running all the while."""
    before, agent_a = await identities(daemon), cluster.agents["a"]
    began = time.monotonic()
    await agent_a.wipe()
    await agent_a.start()
    await cluster.beats_again("a")
    told = {("apply_workload", name): 1 for name in WORK["a"]}
    async with asyncio.timeout(60):
        while await agent_a.asked() != told:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    record_property("lost_state_to_taken_over_seconds", round(time.monotonic() - began, 2))
    await cluster.beats_again("a")
    assert await identities(daemon) == before
    shown = {view.status for at, view in cluster.history if at >= began}
    assert shown <= {"Running"}
    assert all(cluster.status(name) == "Running" for name in WORK["a"])
    listed = (await agent_a.call("ListWorkloads", agent.ListWorkloadsRequest())).workloads
    assert not [each.id for each in listed if "orphan" in each.metadata]


async def test_a_neighbour_that_loses_everything_harms_nobody(
    cluster: Cluster, daemon: Dockerd
) -> None:
    """One agent's state and containers are removed by hand; it registers anew, is given its work
    again, and the other's ten containers are those that they were."""
    wiped = cluster.agents["a"]
    before = {name: each for name, each in (await identities(daemon)).items() if name in WORK["b"]}
    assert len(before) == len(WORK["b"])
    await wiped.wipe()
    for name in WORK["a"]:
        await asyncio.to_thread(daemon.ask, "DELETE", f"/containers/{name}?force=1&v=1")
    await wiped.start()
    await cluster.beats_again("a")
    await eventually(lambda: set(WORK["a"]) <= _running(daemon), "its work is back", 60)
    await cluster.all_run(*ALL)
    after = await identities(daemon)
    assert {name: after[name] for name in WORK["b"]} == before

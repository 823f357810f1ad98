"""Two hosts, each with an agent and a Docker daemon of its own: what is drained, cut off or started
anew runs once, in the right place."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio

from persys_proto.agent.v1 import agent_pb2 as agent
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture
from tests.e2e.agents import identities, running_names, shell
from tests.e2e.processes import eventually, server
from tests.e2e.real_cluster import Cluster, cluster_of
from tests.servers.dockerd import Dockerd, run_dockerd

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Hosts = dict[str, Dockerd]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """A daemon for each node."""
    with run_dockerd() as one, run_dockerd() as two:
        yield {"n1": one, "n2": two}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A scheduler that moves work after some seconds of silence."""
    folder = tmp_path_factory.mktemp("outages")
    async with (
        server(
            folder,
            SCHEDULER_NODE_UNAVAILABLE_GRACE="4s",
            SCHEDULER_DRIFT_DETECT_INTERVAL="1s",
        ) as running,
        cluster_of(running, hosts) as made,
    ):
        yield made


async def run_on_n1(cluster: Cluster, *work: str) -> None:
    """Let it run there, with another node to go to."""
    await cluster.cordon("n2")
    await cluster.apply(*map(shell, work))
    await cluster.all_run(*work, on="n1")
    await cluster.uncordon("n2")


async def test_a_drained_nodes_work_runs_elsewhere(
    cluster: Cluster, hosts: Hosts, record_property: Callable[[str, object], None]
) -> None:
    """Within seconds, and the old copies are gone."""
    work = ("d1", "d2", "d3")
    await run_on_n1(cluster, *work)
    began = time.monotonic()
    await cluster.stub.DrainNode(pb.DrainNodeRequest(node_id="n1", reason="new disk"), timeout=10)
    await cluster.all_run(*work, on="n2")
    record_property("drain_to_running_elsewhere_seconds", round(time.monotonic() - began, 2))
    assert time.monotonic() - began < 15
    await eventually(lambda: not hosts["n1"].containers(), "the old copies are gone")
    assert await running_names(hosts["n2"]) == set(work)
    await cluster.stub.UndrainNode(pb.UndrainNodeRequest(node_id="n1"), timeout=10)
    await cluster.delete(*work)


async def test_a_node_that_returns_with_replaced_work_is_told_one_delete(
    cluster: Cluster, hosts: Hosts
) -> None:
    """N04: its agent was silent, the work was replaced elsewhere, and it returns still running it:
    exactly one delete, no apply, and the replacement is not touched."""
    one = cluster.agents["n1"]
    await run_on_n1(cluster, "moved")
    before = await one.asked()
    one.pause()
    await cluster.all_run("moved", on="n2")
    replacement = await identities(hosts["n2"])
    assert set(await identities(hosts["n1"])) == {"moved"}, "it still runs there"
    one.resume()
    await cluster.ready("n1")
    await eventually(lambda: not hosts["n1"].containers(), "the old copy is gone")
    await cluster.beats_again("n1")
    assert await one.asked() - before == {("delete_workload", "moved"): 1}
    assert await identities(hosts["n2"]) == replacement
    await cluster.delete("moved")


async def test_a_node_that_returns_alone_is_told_nothing(cluster: Cluster, hosts: Hosts) -> None:
    """N04 where nothing else takes the work: no apply, no delete, the same container."""
    one = cluster.agents["n1"]
    await cluster.cordon("n2")
    await cluster.apply(shell("alone"))
    await cluster.all_run("alone", on="n1")
    before, ran = await one.asked(), await identities(*hosts.values())
    one.pause()
    assert await cluster.eye.until(
        lambda seen: (
            "n1" not in [each.node_id for each in seen.nodes if each.status == "Ready"]
            and cluster.status("alone") != "Running"
        ),
        30,
    ), cluster.eye.picture
    one.resume()
    await cluster.ready("n1")
    await cluster.until("alone", "Running")
    await cluster.beats_again("n1")
    assert await one.asked() == before
    assert await identities(*hosts.values()) == ran
    await cluster.uncordon("n2")
    await cluster.delete("alone")


async def test_a_daemon_that_is_away_loses_nothing(cluster: Cluster, hosts: Hosts) -> None:
    """The daemon dies and its containers run on unseen: the agent says so, and nothing is deleted
    or moved by mistake. When it is back they are the same containers, where they were, once."""
    work = ("r1", "r2", "r3")
    one = cluster.agents["n1"]
    await run_on_n1(cluster, *work)
    before, ids = await one.asked(), _ids(hosts["n1"])
    pids = [each["State"]["Pid"] for each in hosts["n1"].containers().values()]

    await asyncio.to_thread(hosts["n1"].kill)
    assert await cluster.eye.until(lambda seen: types(seen, "n1") == [], 20), cluster.words()
    told = await one.call("HealthCheck", agent.HealthCheckRequest())
    assert not told.healthy
    assert told.runtime_status["container"].startswith("unhealthy: ")
    await cluster.beats_again("n1", beats=3)
    assert set(map(str, pids)) <= set(os.listdir("/proc")), "they run on"

    await asyncio.to_thread(hosts["n1"].start)
    assert await cluster.eye.until(lambda seen: types(seen, "n1") == ["container"], 20)
    await _are_back(cluster, hosts, ids, *work)
    assert await one.asked() == before, "nobody told the agent anything"


async def test_a_daemon_that_starts_anew_runs_everything_again(
    cluster: Cluster, hosts: Hosts
) -> None:
    """It ends all containers as it ends (no live-restore): they run again, none is lost, deleted
    or made twice."""
    work = ("r1", "r2", "r3")
    one = cluster.agents["n1"]
    before, ids = await one.asked(), _ids(hosts["n1"])
    await asyncio.to_thread(hosts["n1"].stop)
    await asyncio.to_thread(hosts["n1"].start)
    await _are_back(cluster, hosts, ids, *work)
    await cluster.beats_again("n1")
    assert not [key for key in await one.asked() - before if key[0] == "delete_workload"]
    await _are_back(cluster, hosts, ids, *work)


def types(seen: Picture, node_id: str) -> list[str]:
    """What a node can run."""
    node = seen.node(node_id)
    assert node is not None
    return list(node.supported_workload_types)


async def _are_back(cluster: Cluster, hosts: Hosts, ids: set[str], *work: str) -> None:
    """The same containers run on n1, and nowhere else."""
    wanted, found = dict.fromkeys(work, "running"), {}
    for _ in range(100):
        found = {n: e["State"]["Status"] for n, e in hosts["n1"].containers().items()}
        if found == wanted:
            break
        await asyncio.sleep(0.2)
    assert found == wanted, cluster.words()
    await cluster.all_run(*work, on="n1")
    assert _ids(hosts["n1"]) == ids
    assert not hosts["n2"].containers()


def _ids(daemon: Dockerd) -> set[str]:
    return {each["Id"] for each in daemon.containers().values()}

"""Containers end to end: a scheduler, an agent and a Docker daemon as real processes.

One cluster for the module: what differs is the workloads. What has to fail takes its time, so it is
applied before everything else, and its tests come last.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture
from tests.e2e.agents import IMPATIENT, LASTING, identities, shell
from tests.e2e.processes import ctl, eventually, free_port, server
from tests.e2e.real_cluster import Cluster, cluster_of
from tests.servers.dockerd import IMAGE, Dockerd, compose_binary, run_dockerd
from tests.servers.registry import Registry, run_registry

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Dockerd]:
    """A daemon of this module's own."""
    with run_dockerd() as running:
        yield running


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """A registry that has no image."""
    with run_registry(asks_who=False) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    daemon: Dockerd, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """A scheduler that gives up soon, and an agent that is busy failing."""
    folder = tmp_path_factory.mktemp("containers")
    async with (
        server(folder, program=IMPATIENT) as running,
        cluster_of(running, {"n1": daemon}, PERSYS_COMPOSE_ENABLED="true") as made,
    ):
        await made.apply(
            shell("crash", "echo no database at db:5432 >&2; exit 3", restart="no"),
            shell("absent", image=f"{registry.address}/shop/web:7"),
            shell("unpulled", image=f"127.0.0.1:{free_port()}/shop/web:7"),
        )
        yield made


def inside(pid: int, *places: str) -> str:
    """A file of the control groups that a process sees, of version 2 or of version 1."""
    for place in places:
        path = Path(f"/proc/{pid}/root/sys/fs/cgroup/{place}")
        if path.exists():
            return path.read_text().split()[0]
    raise AssertionError(f"none of {places} is there")


async def test_limits_are_what_was_asked_for(
    cluster: Cluster, daemon: Dockerd, record_property: Callable[[str, object], None]
) -> None:
    """A container of an image that was never in a registry runs, and the kernel holds it to the
    request: CPU time, memory, and no swap beyond it."""
    began = time.monotonic()
    await cluster.apply(shell("limited", cpu=250, memory=64))
    await cluster.until("limited", "Running")
    record_property("apply_to_running_seconds", round(time.monotonic() - began, 2))
    shown = (await asyncio.to_thread(daemon.containers))["limited"]
    pid = shown["State"]["Pid"]
    assert inside(pid, "memory.max", "memory/memory.limit_in_bytes") == str(64 << 20)
    assert inside(pid, "cpu.max", "cpu/cpu.cfs_quota_us") == "25000"
    assert shown["HostConfig"]["MemorySwap"] == 64 << 20
    labels = shown["Config"]["Labels"]
    assert (labels["persys.node_id"], labels["persys.cluster_id"]) == ("n1", "e2e")


async def test_a_port_conflict_names_the_port_and_its_holder(
    cluster: Cluster, daemon: Dockerd
) -> None:
    """Who has the port is told up to the command line; the holder runs on untouched."""
    port = free_port()
    bound = [pb.Port(host_port=port, container_port=80, protocol="tcp")]
    await cluster.apply(shell("first", ports=bound))
    await cluster.until("first", "Running")
    holder = (await identities(daemon))["first"]
    await cluster.apply(shell("second", ports=bound))
    failed = await cluster.until("second", "Failed")
    assert failed.reason.code == "port_conflict"
    told = await ctl(cluster.server.address, "explain", "second")
    words = " ".join(told.out.split())
    assert f'host port {port} is taken by container "first", node "n1"' in words
    assert (await identities(daemon))["first"] == holder


async def test_a_port_whose_holder_is_leaving_is_waited_for(cluster: Cluster) -> None:
    """A workload that comes before another has let go of its port runs as soon as it can, and
    that costs it no attempt."""
    port = free_port()
    bound = [pb.Port(host_port=port, container_port=80, protocol="tcp")]
    slow = "trap 'sleep 4; exit 0' TERM; sleep 600 & wait"
    await cluster.apply(shell("leaving", slow, ports=bound))
    await cluster.until("leaving", "Running")
    await cluster.stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="leaving"))
    await cluster.apply(shell("coming", ports=bound))
    running = await cluster.until("coming", "Running")
    assert running.retry_attempts == 0


async def test_output_is_read_and_commands_run_where_the_workload_is(cluster: Cluster) -> None:
    """persysctl asks the scheduler where, and that node's agent for the rest: each stream goes to
    its own, and the command's exit code is that of persysctl."""
    await cluster.apply(shell("talks", "echo one; echo two >&2; exec sleep 600"))
    await cluster.until("talks", "Running")
    address = cluster.server.address
    written = await ctl(address, "logs", "talks")
    assert (written.code, written.out, written.err) == (0, "one\n", "two\n")
    ran = await ctl(address, "exec", "talks", "--", "sh", "-c", "echo $((40 + 2)); exit 7")
    assert (ran.code, ran.out) == (7, "42\n")


async def test_what_runs_and_is_not_well_is_told(cluster: Cluster) -> None:
    """A crash loop under a policy that starts it again, and a check that fails: both are Running,
    and persysctl says of each what is amiss."""
    loop = shell("looping", "sleep 2; echo no such table >&2; exit 3", restart="always")
    sick = shell("sick")
    check = "persys.agent.health."
    sick.spec.metadata.update({f"{check}command": "echo no answer; exit 1", f"{check}retries": "1"})
    sick.spec.metadata[f"{check}interval"] = "0.5"
    await cluster.apply(loop, sick)

    def is_told(name: str, code: str) -> Callable[[Picture], bool]:
        def told(seen: Picture) -> bool:
            view = seen.workload(name)
            return view is not None and view.reason.code == code

        return told

    assert await cluster.eye.until(is_told("looping", "restarting"), 60)
    assert await cluster.eye.until(is_told("sick", "unhealthy"), 60)
    address = cluster.server.address
    listed = {
        line.split()[0]: " ".join(line.split())
        for line in (await ctl(address, "list", "workloads")).out.splitlines()
    }
    assert "Running (restarting)" in listed["looping"]
    assert "in 10 min, last exit 3: no such table" in listed["looping"]
    assert "Running (unhealthy)" in listed["sick"]
    described = (await ctl(address, "describe", "workload", "sick")).out
    assert "Running (unhealthy: no answer)" in described
    await cluster.delete("looping", "sick")


async def test_an_application_keeps_its_data(cluster: Cluster, daemon: Dockerd) -> None:
    """Two services and a named volume: a new revision finds what the old one wrote; the user's
    delete takes it. (Other removals leave it: the contract of the runtimes.)"""
    compose_binary()
    await cluster.apply(application("date > /data/first"))
    await cluster.until("shop", "Running")
    volumes = await named_volumes(daemon)
    assert len(volumes) == 1
    assert len(shop_containers(await asyncio.to_thread(daemon.containers))) == 2

    await cluster.apply(application("test -s /data/first || exit 7"))
    await eventually(lambda: len(ran(daemon, "exit 7")) == 1, "the new revision runs", 30)
    await cluster.until("shop", "Running")
    assert await named_volumes(daemon) == volumes

    await cluster.delete("shop")
    await eventually(lambda: not shop_containers(daemon.containers()), "nothing is left")
    assert await named_volumes(daemon) == []


def application(script: str) -> pb.ApplyWorkloadRequest:
    """Two services, one of which does something with its data first."""

    def service(*words: str) -> dict[str, object]:
        command = ["sh", "-c", "; ".join((*words, LASTING))]
        return {"image": IMAGE, "command": command, "network_mode": "none"}

    services = {"web": service(), "db": {**service(script), "volumes": ["data:/data"]}}
    file = json.dumps({"version": "3.8", "services": services, "volumes": {"data": {}}})
    spec = pb.WorkloadSpec(
        type="compose",
        resources=pb.ResourceRequirements(cpu_millicores=50, memory_mb=32),
        compose=pb.ComposeSpec(source_type="inline", inline_yaml=file),
    )
    return pb.ApplyWorkloadRequest(workload_id="shop", spec=spec)


def shop_containers(shown: dict[str, object]) -> list[object]:
    """The containers of the application."""
    return [each for each in shown.values() if _label(each, "persys.workload_id") == "shop"]


def ran(daemon: Dockerd, words: str) -> list[object]:
    """Those that run with these words in their command."""
    found = shop_containers(daemon.containers())
    return [each for each in found if words in str(each) and "'Running': True" in str(each)]


def _label(shown: object, name: str) -> str:
    assert isinstance(shown, dict)
    return str(shown["Config"]["Labels"].get(name, ""))


async def named_volumes(daemon: Dockerd) -> list[str]:
    """The volumes that the daemon has."""
    found = await asyncio.to_thread(daemon.ask, "GET", "/volumes")
    assert isinstance(found, dict)
    return sorted(each["Name"] for each in found["Volumes"] or [])


async def test_a_missing_image_is_said_at_once(cluster: Cluster, registry: Registry) -> None:
    """The registry says that there is none: the first look shows it, and it spends attempts, since
    somebody may push it yet (R03)."""
    given_up = await cluster.until("absent", "Failed")
    image = f"{registry.address}/shop/web:7"
    assert given_up.reason.code == "image_not_found"
    assert f'image "{image}" cannot be pulled' in given_up.reason.message
    began = next(at for at, view in cluster.history if view.workload_id == "absent")
    at, waiting = cluster.was("absent", "RetryPending")[0]
    assert at - began < 5
    assert (waiting.reason.code, waiting.retry_attempts) == ("image_not_found", 1)


async def test_a_crash_loop_is_given_up_with_its_last_words(cluster: Cluster) -> None:
    """It is tried again, later each time, and then Failed with what the container said last."""
    given_up = await cluster.until("crash", "Failed")
    assert "exited with code 3: no database at db:5432" in given_up.reason.message
    assert "given up after 3 attempts" in given_up.reason.message
    assert (given_up.reason.code, given_up.reason.retryable) == ("exited", False)
    waits = [view for _, view in cluster.was("crash", "RetryPending")]
    assert {view.retry_attempts for view in waits} == {1, 2}
    assert all(view.HasField("retry_next_at") for view in waits)


async def test_a_registry_that_is_away_spends_no_attempt(cluster: Cluster) -> None:
    """Nobody listens there: that is an outage and not this workload's fault, and is tried again
    without an end."""
    waiting = await cluster.until("unpulled", "RetryPending", 10)
    assert (waiting.reason.code, waiting.retry_attempts) == ("registry_unreachable", 0)
    assert not cluster.was("unpulled", "Failed")


async def test_a_job_that_ended_well_frees_its_room_for_good(
    cluster: Cluster, daemon: Dockerd
) -> None:
    """Exit code 0 under the policy `no` is Completed: nothing is allocated for it any more, and a
    new start of the agent does not run it again."""
    assert cluster.allocated("n1") < 512
    await cluster.apply(shell("job", "sleep 1; echo done", restart="no", memory=512))
    assert await cluster.eye.until(lambda _: cluster.allocated("n1") >= 512, 10)
    await cluster.until("job", "Completed")
    assert await cluster.eye.until(lambda _: cluster.allocated("n1") < 512, 10)
    ended = (await asyncio.to_thread(daemon.containers))["job"]["State"]

    await cluster.agents["n1"].kill()
    await cluster.agents["n1"].start()
    await cluster.beats_again("n1")
    assert cluster.status("job") == "Completed"
    assert (await asyncio.to_thread(daemon.containers))["job"]["State"] == ended
    assert [view.status for _, view in cluster.history if view.workload_id == "job"][-1] == (
        "Completed"
    )

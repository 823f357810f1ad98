"""The files of `deploy/ha` as the real programs see them, and HAProxy in front of real replicas.

HAProxy itself comes with `./dev test --system`.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import grpc.aio
import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from tests.e2e.processes import Server, client, container, free_port, server
from tests.servers.etcd import EtcdCluster
from tests.servers.haproxy import CONFIGURATION, Balancer, balancer, haproxy_binary

pytestmark = pytest.mark.slow

_log = logging.getLogger(__name__)

HA = CONFIGURATION.parent
HOSTS = {f"scheduler-{number}": f"127.0.0.{10 + number}" for number in (1, 2, 3)}
CHECK_BOUND = 6.5
"""Seconds: inter + timeout check + fastinter + timeout check, as haproxy.cfg says."""
SLACK = 3.0
"""What a busy machine may take longer; far below the minute of any other timeout."""

Watch: TypeAlias = "grpc.aio.UnaryStreamCall[pb.WatchEventsRequest, pb.SchedulerEventView]"


def said(*command: str) -> str:
    """What a program says that has to be content."""
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def shipped(name: str) -> str:
    """A program that a machine may lack, and that is not installed for tests."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.system
def test_haproxy_takes_its_configuration() -> None:
    """Whatever it warns of is that names are not known here; none of our words is wrong."""
    told = said(haproxy_binary(), "-c", "-f", str(CONFIGURATION))
    warnings = [line for line in told.splitlines() if "[WARNING]" in line or "[ALERT]" in line]
    assert [line for line in warnings if "could not resolve address" not in line] == []


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """It has nothing to say against the unit, and calls its exposure low."""
    analyze = shipped("systemd-analyze")
    text = (HA / "persys-scheduler.service").read_text()
    file = tmp_path / "persys-scheduler.service"
    file.write_text(text.replace("/opt/persys/bin/persys-server", "/bin/true"))
    told = said(analyze, "verify", str(file))
    assert file.name not in told
    said(analyze, "security", "--offline=true", "--threshold=20", str(file))


def test_docker_takes_its_files(tmp_path: Path) -> None:
    """Docker's own reading of both files. Where its Compose plugin is missing, Swarm reads that
    file too: it knows all of it but the name of the project."""
    docker = shipped("docker")
    said(docker, "stack", "config", "-c", str(HA / "docker-stack.scheduler-ha.snippet.yml"))
    compose = HA / "docker-compose.scheduler-ha.yml"
    version = (docker, "compose", "version")
    if subprocess.run(version, capture_output=True, check=False).returncode == 0:
        said(docker, "compose", "-f", str(compose), "config", "--quiet")
        return
    file = tmp_path / compose.name
    file.write_text(compose.read_text().replace("name: persys-scheduler-ha\n", ""))
    said(docker, "stack", "config", "-c", str(file))


class Replicas:
    """Three servers on one etcd, each at an address of its own; each can end and come back."""

    def __init__(self, etcd: EtcdCluster, folder: Path) -> None:
        self.ports = (free_port(), free_port())
        self.running: dict[str, Server] = {}
        self._etcd = etcd
        self._folder = folder
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Replicas:
        try:
            await asyncio.gather(*(self.start(name) for name in HOSTS))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, name: str) -> None:
        """Start it, or start it again on what it had."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        self.running[name] = await self._stack.enter_async_context(
            server(
                folder,
                port=self.ports[0],
                metrics_port=self.ports[1],
                ready_seconds=60,
                PERSYS_GRPC_ADDR=HOSTS[name],
                PERSYS_STORE="etcd",
                ETCD_ENDPOINTS=",".join(self._etcd.endpoints),
            )
        )

    async def named(self, instance_id: str, without: str = "") -> str:
        """Which of them calls itself so; ``without`` is not asked, since it would not answer."""
        for name, running in self.running.items():
            if name != without:
                async with client(running.address) as stub:
                    if await answering(stub) == instance_id:
                        return name
        raise AssertionError(f"none of them is {instance_id}")


@asynccontextmanager
async def in_front(etcd: EtcdCluster, folder: Path) -> AsyncIterator[tuple[Replicas, Balancer]]:
    """Three replicas that serve, and HAProxy that knows it."""
    haproxy_binary()
    async with Replicas(etcd, folder) as replicas:
        own = (free_port(), free_port(), free_port())
        async with balancer(folder, list(HOSTS.values()), replicas.ports, own) as front:
            await front.until_up(set(HOSTS))
            yield replicas, front


async def answering(stub: control_pb2_grpc.AgentControlAsyncStub) -> str:
    """Which instance answers."""
    answer = await stub.GetClusterSummary(
        pb.GetClusterSummaryRequest(), timeout=30, wait_for_ready=True
    )
    return answer.instance_id


async def next_answer(stub: control_pb2_grpc.AgentControlAsyncStub) -> tuple[str, float]:
    """Who answers a client that asks again when its connection is cut, and after how long."""
    began = time.monotonic()
    while True:
        try:
            return await answering(stub), time.monotonic() - began
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise


async def cut(watch: Watch) -> float:
    """Wait for the end of a stream by error; after how long it came."""
    began = time.monotonic()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in watch:
            pass
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return time.monotonic() - began


async def watching_at(
    stub: control_pb2_grpc.AgentControlAsyncStub, replicas: Replicas
) -> tuple[str, Watch]:
    """The replica at the other end of a client's connection, and a watch that is open there.

    The watch was sent before the call that is answered, over the same connection.
    """
    watch = stub.WatchEvents(pb.WatchEventsRequest())
    return await replicas.named(await answering(stub)), watch


@pytest.mark.system
@pytest.mark.asyncio
async def test_a_frozen_replica_is_taken_out(etcd_alone: EtcdCluster, tmp_path: Path) -> None:
    """It still accepts connections, but its sessions are shut, calls go on elsewhere within the
    bound of the check, and it is back once it goes on."""
    async with (
        in_front(etcd_alone, tmp_path) as (replicas, front),
        client(front.address) as stub,
    ):
        name, watch = await watching_at(stub, replicas)
        replicas.running[name].signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(CHECK_BOUND + SLACK):
                (instance, took), ended = await asyncio.gather(next_answer(stub), cut(watch))
            _log.info("next call after %.1f s, streams cut after %.1f s", took, ended)
            assert await front.up() == set(HOSTS) - {name}
            assert await replicas.named(instance, without=name) != name
            answer = await stub.ApplyWorkload(container("w1"), timeout=10)
            assert answer.success
        finally:
            replicas.running[name].signal(signal.SIGCONT)
        await front.until_up(set(HOSTS))


@pytest.mark.system
@pytest.mark.asyncio
async def test_a_killed_replica_is_replaced(etcd_alone: EtcdCluster, tmp_path: Path) -> None:
    """After kill -9 the next call is answered by another at once; started again, it is back."""
    async with (
        in_front(etcd_alone, tmp_path) as (replicas, front),
        client(front.address) as stub,
    ):
        name, watch = await watching_at(stub, replicas)
        replicas.running[name].signal(signal.SIGKILL)
        async with asyncio.timeout(CHECK_BOUND + SLACK):
            (_, took), ended = await asyncio.gather(next_answer(stub), cut(watch))
        _log.info("next call after %.1f s, streams cut after %.1f s", took, ended)
        await front.until_up(set(HOSTS) - {name})
        await replicas.start(name)
        await front.until_up(set(HOSTS))
        async with client(replicas.running[name].address) as directly:
            again = await answering(directly)
        async with asyncio.timeout(20):
            while await one_answer(front) != again:
                pass


async def one_answer(front: Balancer) -> str:
    """Who answers a client that has just connected."""
    async with client(front.address) as stub:
        return await answering(stub)

"""The programs as processes: started, watched and always ended.

Every address is a free port of the loopback interface. Nothing is waited for by sleeping alone:
programs by their output or their health, the cluster by its events.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio
from attrs import define, evolve, frozen
from grpc_health.v1 import health_pb2, health_pb2_grpc

from persys_core.model.states import WorkloadType
from persys_core.sim.agent_settings import AgentSettings, Latency, our_agent
from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.dev.picture import ClusterEye
from tests.fleets.fleet import Fleet, open_fleet

__all__ = [
    "Finished",
    "Program",
    "Server",
    "agents",
    "client",
    "container",
    "control",
    "ctl",
    "eventually",
    "free_port",
    "quick_node",
    "run_program",
    "scraped",
    "server",
    "server_environment",
    "started",
    "watching",
]

BIN = Path(sys.executable).parent
QUICK = Latency.of(0.02, 0.1)
READY_SECONDS = 20.0
END_SECONDS = 10.0
_FOREIGN = ("PERSYS_", "SCHEDULER_", "REDIS_", "ETCD_", "OTEL_", "JAEGER_")


@frozen
class Finished:
    """A program that ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str


@define
class Program:
    """A program that runs; ``log`` has everything it writes."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @property
    def text(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def ended(self, seconds: float = END_SECONDS) -> int:
        """Wait for its end; the exit code."""
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def says(self, words: str, seconds: float = READY_SECONDS) -> None:
        """Wait until it has written ``words``."""

        def check() -> bool:
            if self.process.returncode is not None and words not in self.text:
                raise AssertionError(
                    f"{self.name} ended with {self.process.returncode}: {self.text}"
                )
            return words in self.text

        await eventually(check, f"{self.name} says {words!r}", seconds)


@define
class Server(Program):
    """A `persys-server run`."""

    port: int
    metrics_port: int
    folder: Path
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        """Where its API is."""
        return f"{self.host}:{self.port}"


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def eventually(holds: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
    """Wait for something that tells nobody when it happens; fails with ``what``."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.03)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


def server_environment(folder: Path, **changed: str) -> dict[str, str]:
    """The environment of a quick server with its state in ``folder``; nothing of ours leaks in."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
    return {
        **own,
        "PERSYS_GRPC_ADDR": "127.0.0.1",
        "PERSYS_STORE": "sqlite:state.db",
        "PERSYS_DATA_DIR": str(folder),
        "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
        "SCHEDULER_NODE_UNAVAILABLE_GRACE": "3m",
        "SCHEDULER_RECONCILE_INTERVAL": "500ms",
        "SCHEDULER_AGENT_RPC_TIMEOUT": "2s",
        "SCHEDULER_LEADER_TTL": "3s",
        "SCHEDULER_MISSING_GRACE_PERIOD": "2s",
        # What a dead server meant to send is sent again after the guard, which is never shorter.
        "SCHEDULER_REAPPLY_GUARD": "15s",
        "SCHEDULER_AGENT_APPLY_TIMEOUT": "15s",
        **changed,
    }


@asynccontextmanager
async def started(
    name: str, *arguments: str, log: Path, env: Mapping[str, str]
) -> AsyncIterator[Program]:
    """A program for as long as the context is open; killed at its end if need be."""
    with log.open("ab") as sink:
        process = await asyncio.create_subprocess_exec(
            str(BIN / name), *arguments, stdout=sink, stderr=sink, env=env
        )
    try:
        yield Program(name, process, log)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def run_program(
    name: str, *arguments: str, env: Mapping[str, str] | None = None, seconds: float = 30.0
) -> Finished:
    """Run a program to its end."""
    process = await asyncio.create_subprocess_exec(
        str(BIN / name),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


async def ctl(address: str, *arguments: str) -> Finished:
    """Run persysctl against a server."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
    return await run_program("persysctl", "--server", address, *arguments, env=own)


@asynccontextmanager
async def server(
    folder: Path,
    *,
    port: int = 0,
    metrics_port: int = 0,
    debug: bool = False,
    ready_seconds: float = READY_SECONDS,
    program: Sequence[str] = ("persys-server",),
    **environment: str,
) -> AsyncIterator[Server]:
    """A `persys-server run` that serves; with ``debug`` asyncio watches itself. ``program`` is
    another command of the same kind."""
    port, metrics_port = port or free_port(), metrics_port or free_port()
    env = server_environment(folder, **environment)
    if debug:
        env["PYTHONASYNCIODEBUG"] = "1"
    ports = ("--grpc-port", str(port), "--metrics-port", str(metrics_port))
    log = folder / f"server-{metrics_port}.log"
    arguments = (*program[1:], "run", "--insecure", *ports)
    async with started(program[0], *arguments, log=log, env=env) as run:
        host = env["PERSYS_GRPC_ADDR"]
        running = Server(run.name, run.process, log, port, metrics_port, folder, host)
        await _serves(running, ready_seconds)
        yield running


async def _serves(running: Server, seconds: float) -> None:
    """Wait for its health service to say SERVING; fails with the log where it ended before."""

    async def healthy() -> None:
        async with grpc.aio.insecure_channel(
            running.address, options=_channel_options()
        ) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest()
            async for answer in stub.Watch(request, wait_for_ready=True):
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return

    ready, end = asyncio.ensure_future(healthy()), asyncio.ensure_future(running.process.wait())
    done, _ = await asyncio.wait((ready, end), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for waiting in (ready, end):
        waiting.cancel()
    await asyncio.gather(ready, end, return_exceptions=True)
    assert ready in done, f"the server does not serve: {running.text}"


def _channel_options() -> list[tuple[str, int]]:
    return [
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]


@asynccontextmanager
async def client(address: str) -> AsyncIterator[control_pb2_grpc.AgentControlAsyncStub]:
    """The generated client."""
    async with grpc.aio.insecure_channel(address, options=_channel_options()) as channel:
        yield agent_control_stub(channel)


@asynccontextmanager
async def watching(address: str) -> AsyncIterator[ClusterEye]:
    """A picture of the cluster that stays up to date, to wait for things in."""
    async with grpc.aio.insecure_channel(address, options=_channel_options()) as channel:
        eye = ClusterEye(channel, lambda _: None)
        following = asyncio.create_task(eye.follow())
        try:
            yield eye
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def container(
    workload_id: str, image: str = "nginx:1.27", *, cpu: int = 10, **fields: Any
) -> pb.ApplyWorkloadRequest:
    """A wish for a small container."""
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=8),
        container=pb.ContainerSpec(image=image, restart_policy="always"),
    )
    return pb.ApplyWorkloadRequest(workload_id=workload_id, spec=spec, **fields)


def quick_node(node_id: str, **changed: Any) -> AgentSettings:
    """The settings of a simulated node of ours that does everything at once."""
    values: dict[str, Any] = {
        "pickup": Latency.of(0), "create": QUICK, "start": QUICK, "stop": QUICK, "delete": QUICK,
        "workload_types": frozenset({WorkloadType.CONTAINER}),
    }  # fmt: skip
    return evolve(our_agent(node_id), **values, **changed)


@asynccontextmanager
async def agents(address: str, *nodes: AgentSettings) -> AsyncIterator[Fleet]:
    """Agents in this process, so that their journals can be read: simulated ones, or real ones with
    containers where `--agents docker` was asked for."""
    async with open_fleet(address, *nodes) as fleet:
        yield fleet


async def control(port: int, path: str, *, post: bool = False) -> Any:
    """Ask the control interface of a `persys-agent` process."""

    def ask() -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", method="POST" if post else "GET"
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=5) as answer:
            return json.loads(answer.read())

    return await asyncio.to_thread(ask)


async def scraped(running: Server, accept: str = "text/plain") -> str:
    """The text of its metrics page."""
    url = f"http://{running.host}:{running.metrics_port}/metrics"

    def ask() -> str:
        request = urllib.request.Request(url, headers={"Accept": accept})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(ask)

"""`persys-agent run` as processes on real Docker daemons: killed, stopped, started again.

An agent keeps its folder, its port and its node id over every start, as on a machine. What ran is
asked of the daemons themselves, never of the agent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio
from attrs import define, field

from persys_proto.agent.v1 import agent_pb2 as agent
from persys_proto.agent.v1 import agent_pb2_grpc
from persys_proto.control.v1 import control_pb2 as pb
from tests.e2e.processes import Program, eventually, free_port, started
from tests.servers.dockerd import IMAGE, Dockerd

__all__ = [
    "IMPATIENT",
    "LASTING",
    "RealAgent",
    "identities",
    "real_agent",
    "running_names",
    "shell",
]

LASTING = "trap 'exit 0' TERM; sleep 600 & wait"
"""Ends at once when it is asked to."""
IMPATIENT = (sys.executable, str(Path(__file__).with_name("impatient_server.py")))
"""The program of a server that gives up within seconds."""
_FOREIGN = ("PERSYS_", "SCHEDULER_", "DOCKER_", "OTEL_")


@define
class RealAgent:
    """One agent on one daemon. ``env`` is added to its settings."""

    node_id: str
    daemon: Dockerd
    scheduler: str
    folder: Path
    env: dict[str, str]
    port: int = field(factory=free_port)
    _life: AsyncExitStack = field(factory=AsyncExitStack)
    _program: Program | None = None

    @property
    def program(self) -> Program:
        """The process of its present start."""
        assert self._program is not None, f"{self.node_id} was never started"
        return self._program

    @property
    def text(self) -> str:
        """What it wrote, over all starts."""
        return self.program.text

    async def start(self) -> None:
        """Start it; returns once it serves."""
        await self._life.aclose()
        log = self.folder / "agent.log"
        seen = log.stat().st_size if log.exists() else 0
        run = started("persys-agent", "run", "--insecure", log=log, env=self._environment())
        self._program = await self._life.enter_async_context(run)
        await eventually(lambda: "started" in self._since(seen), f"{self.node_id} starts")

    async def kill(self) -> None:
        """End it without a word."""
        self.program.signal(signal.SIGKILL)
        await self.program.ended()

    def pause(self) -> None:
        """Let it take calls in and answer none."""
        self.program.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.program.signal(signal.SIGCONT)

    async def wipe(self) -> None:
        """End it and remove all that it remembers."""
        await self.kill()
        for path in (self.folder / "data").glob("state.db*"):
            path.unlink()

    async def aclose(self) -> None:
        """End it for good."""
        with suppress(ProcessLookupError):
            self.resume()
        await self._life.aclose()

    async def asked(self) -> Counter[tuple[str, str]]:
        """How often it took in each (``apply_workload``, id) and (``delete_workload``, id)."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
            answer = await stub.ListActions(agent.ListActionsRequest(), timeout=5)
        return Counter((each.action_type, each.workload_id) for each in answer.actions)

    async def call(self, method: str, request: object) -> Any:
        """One call of its service."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            return await getattr(agent_pb2_grpc.AgentServiceStub(channel), method)(
                request, timeout=5
            )

    @property
    def memory_mb(self) -> float:
        """Resident memory of its process."""
        status = Path(f"/proc/{self.program.process.pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def _since(self, seen: int) -> str:
        if self.program.process.returncode is not None:
            raise AssertionError(f"{self.node_id} ended: {self.text}")
        return self.program.log.read_bytes()[seen:].decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        return {
            **own,
            "PERSYS_NODE_ID": self.node_id,
            "PERSYS_CLUSTER_ID": "e2e",
            "PERSYS_SCHEDULER_ADDR": self.scheduler,
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "PERSYS_GRPC_PORT": str(self.port),
            "PERSYS_METRICS_PORT": "0",
            "PERSYS_AGENT_DATA_DIR": str(self.folder / "data"),
            "PERSYS_DOCKER_ENDPOINT": self.daemon.endpoint,
            "PERSYS_COMPOSE_ENABLED": "false",
            "PERSYS_VM_ENABLED": "false",
            "PERSYS_FIRECRACKER_ENABLED": "false",
            "PERSYS_RECONCILE_INTERVAL": "1s",
            "PERSYS_STOP_GRACE": "2s",
            **self.env,
        }


@asynccontextmanager
async def real_agent(
    node_id: str, daemon: Dockerd, scheduler: str, folder: Path, **env: str
) -> AsyncIterator[RealAgent]:
    """An agent that serves; ended with the block, its containers left to the daemon's own end."""
    own = folder / node_id
    own.mkdir()
    made = RealAgent(node_id, daemon, scheduler, own, env)
    try:
        await made.start()
        yield made
    finally:
        await made.aclose()


def shell(
    workload_id: str,
    script: str = LASTING,
    *,
    image: str = IMAGE,
    restart: str = "always",
    cpu: int = 10,
    memory: int = 16,
    **fields: Any,
) -> pb.ApplyWorkloadRequest:
    """A wish for a container that runs ``script``; ``fields`` are those of the container."""
    body = pb.ContainerSpec(
        image=image, command=["sh", "-c", script], restart_policy=restart, **fields
    )
    resources = pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=memory)
    spec = pb.WorkloadSpec(type="container", resources=resources, container=body)
    return pb.ApplyWorkloadRequest(workload_id=workload_id, spec=spec)


async def identities(*daemons: Dockerd) -> dict[str, tuple[str, str]]:
    """Id and start of each container that runs, by name: equal means that nothing was touched."""
    found: dict[str, tuple[str, str]] = {}
    for daemon in daemons:
        shown = await asyncio.to_thread(daemon.containers)
        for name, each in shown.items():
            if each["State"]["Status"] == "running":
                found[name] = (each["Id"], each["State"]["StartedAt"])
    return found


async def running_names(daemon: Dockerd) -> set[str]:
    """The containers that run there."""
    return set(await identities(daemon))

"""``NodeFleet``: several real nodes in one process, on one Docker daemon, for demos and tests.

Decided here: how one machine stands for many. Each node has a size of its own, which is not the
machine's, a folder of its own and its id in the names of its containers; all are of one cluster,
whose id is in the labels, so that nothing else on the daemon is ever touched. A node that is killed
loses its containers as by a loss of power. At the end all that the cluster made is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import evolve, field, frozen

from persys_agent.host.facts import HostFacts, read_facts
from persys_agent.node.program import run_node
from persys_agent.runtimes.docker.engine import Engine
from persys_agent.runtimes.docker.sweep import power_off, sweep
from persys_agent.settings import NodeSettings, Places, load_settings
from persys_core.model.ids import NodeId

__all__ = ["FleetPlace", "Member", "NodeFleet"]


@frozen
class FleetPlace:
    """Where a fleet lives: the daemon, the scheduler, the ``folder`` of its states, and the id of
    a cluster that nobody else has."""

    endpoint: str
    scheduler: str
    folder: Path
    cluster_id: str


@frozen
class Member:
    """One node: its size in millicores, MiB and GiB, and whether it runs applications too."""

    node_id: NodeId
    cpu_millicores: int
    memory_mb: int
    disk_gb: int = 200
    labels: Mapping[str, str] = field(factory=dict)
    runs_compose: bool = True


class NodeFleet:
    """Nodes live from ``add`` to ``kill`` or to the end of the block."""

    def __init__(self, place: FleetPlace) -> None:
        self._place = place
        self._engine = Engine(place.endpoint)
        self._ends: dict[NodeId, asyncio.Event] = {}
        self._running: dict[NodeId, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._engine.aclose)
            await asyncio.gather(*map(self._stop, tuple(self._running)))
            projects = await asyncio.to_thread(self._projects)
            await sweep(self._engine, lambda each: each == self._place.cluster_id, projects)

    async def add(self, member: Member) -> None:
        """Switch a node on; it listens when this returns. Raises ``PersysError``."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        end = self._ends[member.node_id] = asyncio.Event()
        running = asyncio.create_task(self._live(member, ready, end), name=member.node_id)
        self._running[member.node_id] = running
        await asyncio.wait((ready, running), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running

    async def kill(self, node_id: NodeId) -> None:
        """Switch a node off: its agent is gone, and nothing that it ran runs on."""
        await self._stop(node_id)
        await power_off(self._engine, self._place.cluster_id, node_id)

    async def _live(self, member: Member, ready: asyncio.Future[None], end: asyncio.Event) -> None:
        machine = _machine(await asyncio.to_thread(read_facts), member)
        async with run_node(self._settings(member), machine=machine):
            ready.set_result(None)
            await end.wait()

    async def _stop(self, node_id: NodeId) -> None:
        running = self._running.pop(node_id, None)
        if running is not None:
            self._ends[node_id].set()
            await asyncio.gather(running, return_exceptions=True)

    def _settings(self, member: Member) -> NodeSettings:
        folder = self._place.folder / member.node_id
        folder.mkdir(parents=True, exist_ok=True)
        flags = {
            "node_id": member.node_id,
            "cluster_id": self._place.cluster_id,
            "node_labels": ",".join(f"{key}={value}" for key, value in member.labels.items()),
            "scheduler_addr": self._place.scheduler,
            "docker_endpoint": self._place.endpoint,
            "compose_enabled": str(member.runs_compose).lower(),
            **_ALWAYS,
        }
        return load_settings({}, flags=flags, places=Places(folder, "", ()))

    def _projects(self) -> list[str]:
        """The Compose projects of all nodes: each has a folder of its name."""
        return [each.name for each in self._place.folder.glob("*/compose/*") if each.is_dir()]


_ALWAYS = {
    **dict.fromkeys(("grpc_addr", "metrics_addr"), "127.0.0.1"),
    **dict.fromkeys(("grpc_port", "metrics_port"), "0"),
    **dict.fromkeys(("tls_enabled", "vm_enabled", "firecracker_enabled"), "false"),
    **dict.fromkeys(("host_reserve_cpu_millicores", "host_reserve_memory_mb"), "0"),
    "host_reserve_disk_gb": "0",
    "scheduler_insecure": "true",
    "container_names": "node",
    "reconcile_interval": "2s",
    "stop_grace": "2s",
}


def _machine(facts: HostFacts, member: Member) -> HostFacts:
    return evolve(
        facts,
        cpu_millicores=member.cpu_millicores,
        memory_mb=member.memory_mb,
        disk_gb=member.disk_gb,
    )

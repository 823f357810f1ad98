"""``DockerFleet``: real nodes in this process, whose workloads are containers.

Decided here: how close they come to simulated ones. A node is the agent's own parts with the Docker
runtime, at an endpoint of its own, on one of a few daemons: workloads that move need another one,
since a container has the name of its workload. Images of any name are busybox that waits, whatever
its command. A node that is killed is a machine without power: its containers end with it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Self

import grpc.aio
from attrs import define, field

from persys_agent.clock import SystemClock
from persys_agent.control_client import ControlClient, open_control_channel
from persys_agent.engine.backends import Backends
from persys_agent.node import Assembly, NodeOptions, Served, assemble, serve
from persys_agent.node.serving import Listening
from persys_agent.runtimes.port import Owner
from persys_agent.simulated.fleet import FleetNode
from persys_agent.state.store import AgentState
from persys_agent.state.thread import StateThread
from persys_agent.testing import MemoryDisks, MemoryStorage
from persys_core.control.requests import RegisterNode
from persys_core.model.ids import NodeId
from persys_core.model.resources import Resources
from persys_core.model.states import WorkloadType
from persys_core.sim.agent_journal import Journal
from persys_core.sim.agent_settings import AgentSettings, our_agent
from tests.fleets.recording import Door, GatedScheduler, RecordingRuntime
from tests.servers.dockerd import Dockerd

__all__ = ["DockerFleet", "DockerNode"]

_SETTLE_SECONDS = 5.0


@define(eq=False)
class DockerNode:
    """One node: its disk, what runs of it now, and what happened on it."""

    settings: AgentSettings
    daemon: Dockerd
    folder: Path
    journal: Journal = field(factory=Journal)
    gate: asyncio.Event = field(factory=asyncio.Event)
    port: int = 0
    registrations: int = 0
    life: AsyncExitStack | None = None
    served: Served | None = None
    assembly: Assembly | None = None

    def registration(self) -> RegisterNode:
        """What it registers with."""
        assert self.assembly is not None, "it never ran"
        return self.assembly.presence.registration()

    @property
    def state(self) -> str:
        """As ``FleetNode`` says it."""
        if self.life is None:
            return "off"
        return "up" if self.gate.is_set() else "paused"

    def containers(self) -> dict[str, bool]:
        """Its containers, and whether they run."""
        own = self.settings.node_id
        return {
            name: bool(shown["State"]["Running"])
            for name, shown in self.daemon.containers().items()
            if shown["Config"]["Labels"].get("persys.node_id") == own
        }


class DockerFleet:
    """The verbs of ``SimulatedFleet``. ``daemons`` gives the daemon of the next node."""

    def __init__(self, scheduler: str, daemons: Callable[[], Dockerd]) -> None:
        self._scheduler = scheduler
        self._next_daemon = daemons
        self._nodes: dict[NodeId, DockerNode] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="fleet"))
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self._nodes.values():
            await _settle(node)
            await _end(node)
            await asyncio.to_thread(_remove, node)
        if self._channel is not None:
            await self._channel.close()
        await asyncio.to_thread(shutil.rmtree, self._folder)

    async def add(self, node_id: NodeId = "", settings: AgentSettings | None = None) -> FleetNode:
        """Start one more node."""
        made = settings or our_agent(node_id)
        folder = self._folder / made.node_id
        folder.mkdir()
        node = DockerNode(made, await asyncio.to_thread(self._next_daemon), folder)
        self._nodes[made.node_id] = node
        # What another test's node of this name was making when it was cut off.
        await asyncio.to_thread(_remove, node)
        await self._start(node)
        return self.node(made.node_id)

    async def kill(self, node_id: NodeId, *, wipe: bool = False) -> FleetNode:
        """Switch a node off: its containers end. ``wipe``: its disk is lost, too."""
        node = self._nodes[node_id]
        await _end(node)
        await asyncio.to_thread(_remove if wipe else _power_off, node)
        if wipe:
            for path in node.folder.iterdir():
                path.unlink()
        return self.node(node_id)

    async def pause(self, node_id: NodeId) -> FleetNode:
        """Let a node take calls in, answer none and send nothing; its containers run on."""
        self._nodes[node_id].gate.clear()
        return self.node(node_id)

    async def revive(self, node_id: NodeId) -> FleetNode:
        """Let a paused node go on, or switch one that is off on again, at its endpoint."""
        node = self._nodes[node_id]
        if node.life is None:
            await self._start(node)
        node.gate.set()
        return self.node(node_id)

    async def relocate(self, node_id: NodeId) -> FleetNode:
        """Restart a node's agent at another port."""
        node = self._nodes[node_id]
        await _end(node)
        node.port = 0
        await self._start(node)
        return self.node(node_id)

    def nodes(self) -> tuple[FleetNode, ...]:
        """Every node, in the order in which they were added."""
        return tuple(map(self.node, self._nodes))

    def node(self, node_id: NodeId) -> FleetNode:
        """One node."""
        node = self._nodes[node_id]
        reporter = node.served.reporter if node.served is not None else None
        return FleetNode(
            node_id=node_id,
            endpoint=f"127.0.0.1:{node.port}",
            state=node.state,
            running=sum(node.containers().values()),
            registrations=node.registrations + (reporter.registrations if reporter else 0),
            problem=reporter.problem if reporter else "",
        )

    def model(self, node_id: NodeId) -> DockerNode:
        """The node itself, with its journal."""
        return self._nodes[node_id]

    async def _start(self, node: DockerNode) -> None:
        node.gate.set()
        clock = SystemClock()
        life = AsyncExitStack()
        thread = await life.enter_async_context(StateThread(node.folder / "state.db"))
        state = AgentState(thread)
        await state.load()
        backends = _backends(node)
        assembly = assemble(_options(node.settings), state, backends, clock, random.Random())
        served = await life.enter_async_context(
            serve(
                assembly,
                backends,
                Listening(port=node.port, interceptors=[Door(node.journal, node.gate)]),
                scheduler=self._link(node, assembly) if self._scheduler else None,
            )
        )
        node.life, node.served, node.assembly, node.port = life, served, assembly, served.port

    def _link(self, node: DockerNode, assembly: Assembly) -> GatedScheduler:
        if self._channel is None:
            self._channel = open_control_channel(self._scheduler, None)
        client = ControlClient(self._channel, allocated=lambda: assembly.works.executor.promised)
        return GatedScheduler(client, node.journal, node.gate)


def _options(settings: AgentSettings) -> NodeOptions:
    return NodeOptions(
        settings.node_id,
        Resources.of(cpu_millicores=settings.cpu_millicores, memory_mb=settings.memory_mb),
        root_pool=settings.storage_pools[0],
        labels=settings.labels,
        stop_after=timedelta(seconds=settings.stop_after_seconds) or None,
        stop_grace=timedelta(seconds=2),
        reconcile_interval=timedelta(seconds=0.5),
        usage_interval=timedelta(seconds=1),
    )


def _backends(node: DockerNode) -> Backends:
    """Docker, and volumes that no container has: the drivers have suites of their own."""
    runtime = RecordingRuntime(node.daemon.endpoint, Owner(node.settings.node_id), node.journal)
    runtimes = {WorkloadType.CONTAINER: runtime}
    disks = MemoryDisks(SystemClock())
    names = node.settings.storage_drivers
    return Backends(runtimes, runtimes, {name: MemoryStorage(disks, name) for name in names})


async def _settle(node: DockerNode) -> None:
    """Let it end what it has begun: the daemon goes on with a call that is cut off, and the
    container would come when nobody expects it."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while node.life is not None and node.assembly is not None and time.monotonic() < deadline:
        if not node.assembly.works.queue.depth:
            return
        await asyncio.sleep(0.02)


async def _end(node: DockerNode) -> None:
    """End the agent; what waits at its door is dropped."""
    life, node.life = node.life, None
    if life is None:
        return
    if node.served is not None and node.served.reporter is not None:
        node.registrations += node.served.reporter.registrations
    node.served = None
    await life.aclose()


def _power_off(node: DockerNode) -> None:
    for name, runs in node.containers().items():
        if runs:
            node.daemon.ask("POST", f"/containers/{name}/kill")


def _remove(node: DockerNode) -> None:
    for name in node.containers():
        node.daemon.ask("DELETE", f"/containers/{name}?force=1&v=1")

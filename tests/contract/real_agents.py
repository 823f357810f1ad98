"""Our real agents, on doubles of their runtimes, as a world of the Agents contract."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc.aio
from attrs import define, field

from persys_adapters.agent_grpc import GrpcAgents
from persys_agent.clock import SystemClock
from persys_agent.engine.backends import Backends
from persys_agent.node.assembly import Assembly, NodeOptions, assemble
from persys_agent.node.serving import Listening, serve
from persys_agent.runtimes.port import Owner
from persys_agent.state.store import AgentState
from persys_agent.state.thread import StateThread
from persys_agent.testing import MemoryDisks, MemoryHost, MemoryRuntime, MemoryStorage
from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.states import WorkloadType
from persys_core.sim.agent import MachineState
from persys_core.sim.agent_journal import Happening, Journal

__all__ = ["RealAgentsWorld", "real_agents_world"]

_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
_SIZE = Resources.of(cpu_millicores=64_000, memory_mb=64_000)


class Pause(grpc.aio.ServerInterceptor):
    """Takes calls in and answers none while ``gate`` is cleared."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Wait for the gate."""
        await self.gate.wait()
        return await continuation(details)


@define(eq=False)
class Machine:
    """A node's machine: what outlives its agent."""

    node_id: NodeId
    folder: Path
    host: MemoryHost
    disks: MemoryDisks
    pause: Pause
    port: int = 0
    node: Assembly | None = None
    stack: AsyncExitStack = field(factory=AsyncExitStack)

    async def start(self) -> None:
        """Start the agent, at the port that it had."""
        clock = self.host.clock
        self.stack = AsyncExitStack()
        state = AgentState(
            await self.stack.enter_async_context(StateThread(self.folder / "state.db"))
        )
        await state.load()
        owner = Owner(self.node_id)
        runtimes = {kind: MemoryRuntime(self.host, owner, kind) for kind in WorkloadType}
        backends = Backends(runtimes, runtimes, {"local": MemoryStorage(self.disks)})
        self.node = assemble(NodeOptions(self.node_id, _SIZE), state, backends, clock)
        listening = Listening(port=self.port, interceptors=(self.pause,))
        served = await self.stack.enter_async_context(serve(self.node, backends, listening))
        self.port = served.port

    async def stop(self) -> None:
        """End the agent; what runs runs on."""
        self.pause.gate.set()
        self.node = None
        await self.stack.aclose()


class RealAgentsWorld:
    """See ``AgentsWorld``; ``ours=False`` gives an agent of ours too."""

    def __init__(self, folder: Path) -> None:
        self.clock = SystemClock()
        self.agents = GrpcAgents()
        self.machines: dict[NodeId, Machine] = {}
        self._folder = folder

    async def add(self, node_id: NodeId, *, ours: bool = True) -> Node:
        """Start an agent."""
        folder = self._folder / node_id
        machine = Machine(node_id, folder, MemoryHost(self.clock), MemoryDisks(self.clock), Pause())
        await machine.start()
        self.machines[node_id] = machine
        return self._node(machine)

    async def move(self, node_id: NodeId) -> Node:
        """Restart an agent at another port."""
        machine = self.machines[node_id]
        await machine.stop()
        machine.port = 0
        await machine.start()
        return self._node(machine)

    async def bring(self, node_id: NodeId, state: MachineState) -> None:
        """Pause, stop or revive an agent."""
        machine = self.machines[node_id]
        match state:
            case MachineState.UP:
                machine.pause.gate.set()
                if machine.node is None:
                    await machine.start()
            case MachineState.PAUSED:
                machine.pause.gate.clear()
            case MachineState.HALTED | MachineState.OFF:
                await machine.stop()

    def journal(self, node_id: NodeId) -> Journal:
        """What the machine really made."""
        journal = Journal()
        made: Counter[str] = self.machines[node_id].host.made
        for name in made.elements():
            journal.write(self.clock.now(), Happening.CREATED, name)
        return journal

    async def stop(self) -> None:
        """End every agent."""
        await asyncio.gather(*(each.stop() for each in self.machines.values()))

    def _node(self, machine: Machine) -> Node:
        endpoint = f"127.0.0.1:{machine.port}"
        return Node(machine.node_id, _SIZE, endpoint, frozenset(WorkloadType), _SINCE)


@asynccontextmanager
async def real_agents_world() -> AsyncIterator[RealAgentsWorld]:
    """A world without agents yet; all end with it."""
    with tempfile.TemporaryDirectory(prefix="persys-agents-") as folder:
        world = RealAgentsWorld(Path(folder))
        try:
            yield world
        finally:
            await world.agents.aclose()
            await world.stop()

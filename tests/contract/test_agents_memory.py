from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

from attrs import evolve

from persys_core.memory.agents import MemoryAgents
from persys_core.model.node import Node
from persys_core.sim.agent import MachineState
from persys_core.sim.agent_cluster import SimulatedMachines
from persys_core.sim.agent_journal import Journal
from persys_core.sim.agent_settings import existing_agent, our_agent
from persys_core.sim.clock import VirtualClock
from persys_core.sim.loop import DEFAULT_START, run_virtual
from persys_core.testing.agents_suite import AgentsContract, AgentsWorld

_LIMIT = timedelta(hours=1)


class _MemoryWorld:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.machines = SimulatedMachines(clock)
        self.agents = MemoryAgents(self.machines)
        self._ports = 7000

    async def add(self, node_id: str, *, ours: bool = True) -> Node:
        settings = our_agent(node_id) if ours else existing_agent(node_id)
        self.machines.add(evolve(settings, endpoint=self._endpoint()))
        return self._node(node_id)

    async def move(self, node_id: str) -> Node:
        model = self.machines.model(node_id)
        model.settings = evolve(model.settings, endpoint=self._endpoint())
        return self._node(node_id)

    async def bring(self, node_id: str, state: MachineState) -> None:
        match state:
            case MachineState.UP:
                self.machines.revive(node_id)
            case MachineState.PAUSED:
                self.machines.pause(node_id)
            case MachineState.HALTED | MachineState.OFF:
                self.machines.kill(node_id)

    def journal(self, node_id: str) -> Journal:
        return self.machines.model(node_id).journal

    def _endpoint(self) -> str:
        self._ports += 1
        return f"10.0.0.1:{self._ports}"

    def _node(self, node_id: str) -> Node:
        presents = self.machines.model(node_id).registration()
        return Node(
            node_id, presents.capacity, presents.endpoint, presents.workload_types, DEFAULT_START
        )


class TestMemoryAgents(AgentsContract):
    def run(self, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        run_virtual(self._with_clock(body), limit=_LIMIT)

    def world(self) -> AbstractAsyncContextManager[AgentsWorld]:
        return self._world()

    def _with_clock(
        self, body: Callable[[], Coroutine[Any, Any, None]]
    ) -> Callable[[VirtualClock], Coroutine[Any, Any, None]]:
        def scenario(clock: VirtualClock) -> Coroutine[Any, Any, None]:
            self._clock = clock
            return body()

        return scenario

    @asynccontextmanager
    async def _world(self) -> AsyncIterator[AgentsWorld]:
        world = _MemoryWorld(self._clock)
        yield world
        await world.agents.aclose()
        assert world.agents.calls_in_flight == 0

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime

from attrs import evolve

from persys_adapters.agent_grpc import GrpcAgents
from persys_agent.clock import SystemClock
from persys_agent.simulated import FleetOptions, SimulatedFleet
from persys_core.model.node import Node
from persys_core.sim.agent import MachineState
from persys_core.sim.agent_journal import Journal
from persys_core.sim.agent_settings import Latency, existing_agent, our_agent
from persys_core.testing.agents_suite import AgentsContract, AgentsWorld

_QUICK = Latency.of(0.005, 0.02)
_SINCE = datetime(2026, 1, 1, tzinfo=UTC)


class _GrpcWorld:
    def __init__(self, fleet: SimulatedFleet) -> None:
        self.clock = SystemClock()
        self.agents = GrpcAgents()
        self._fleet = fleet

    async def add(self, node_id: str, *, ours: bool = True) -> Node:
        settings = our_agent(node_id) if ours else existing_agent(node_id)
        await self._fleet.add(
            node_id, evolve(settings, create=_QUICK, start=_QUICK, stop=_QUICK, delete=_QUICK)
        )
        return self._node(node_id)

    async def move(self, node_id: str) -> Node:
        await self._fleet.relocate(node_id)
        return self._node(node_id)

    async def bring(self, node_id: str, state: MachineState) -> None:
        match state:
            case MachineState.UP:
                await self._fleet.revive(node_id)
            case MachineState.PAUSED:
                await self._fleet.pause(node_id)
            case MachineState.HALTED | MachineState.OFF:
                await self._fleet.kill(node_id)

    def journal(self, node_id: str) -> Journal:
        return self._fleet.model(node_id).journal

    def _node(self, node_id: str) -> Node:
        presents = self._fleet.model(node_id).registration()
        return Node(node_id, presents.capacity, presents.endpoint, presents.workload_types, _SINCE)


class TestGrpcAgents(AgentsContract):
    def world(self) -> AbstractAsyncContextManager[AgentsWorld]:
        return self._world()

    @asynccontextmanager
    async def _world(self) -> AsyncIterator[AgentsWorld]:
        async with SimulatedFleet(FleetOptions(nodes=0, seed=1)) as fleet:
            world = _GrpcWorld(fleet)
            yield world
            await world.agents.aclose()
            assert world.agents.open_channels == 0

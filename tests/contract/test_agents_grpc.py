from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime

import pytest
from attrs import evolve

from persys_adapters.agent_grpc import GrpcAgents
from persys_agent.clock import SystemClock
from persys_core.model.node import Node
from persys_core.model.states import WorkloadType
from persys_core.sim.agent import MachineState
from persys_core.sim.agent_journal import Journal
from persys_core.sim.agent_settings import Latency, existing_agent, our_agent
from persys_core.testing.agents_suite import AgentsContract, AgentsWorld
from tests.fleets.choice import CHOSEN, AgentChoice
from tests.fleets.fleet import Fleet, open_fleet

_QUICK = Latency.of(0.005, 0.02)
_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
_OF_THE_FIELD = "it is about agents of the field, with their defects"


__all__ = ["GrpcWorld", "open_world"]


class GrpcWorld:
    def __init__(self, fleet: Fleet) -> None:
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
        journal: Journal = self._fleet.model(node_id).journal
        return journal

    def _node(self, node_id: str) -> Node:
        presents = self._fleet.model(node_id).registration()
        return Node(node_id, presents.capacity, presents.endpoint, presents.workload_types, _SINCE)


@asynccontextmanager
async def open_world() -> AsyncIterator[GrpcWorld]:
    """Agents of the kind that was chosen, behind real servers."""
    async with open_fleet(hosts=1) as fleet:
        world = GrpcWorld(fleet)
        yield world
        await world.agents.aclose()
        assert world.agents.open_channels == 0


class TestGrpcAgents(AgentsContract):
    def world(self) -> AbstractAsyncContextManager[AgentsWorld]:
        return open_world()

    def kinds(self) -> frozenset[WorkloadType]:
        is_real = CHOSEN.agents is AgentChoice.DOCKER
        return frozenset({WorkloadType.CONTAINER}) if is_real else super().kinds()

    @pytest.mark.simulated("real agents tell of a task in flight in listings, too")
    def test_a_task_in_flight_shows_in_the_status_only(self) -> None:
        """As the contract says; ``test_agents_docker`` has what real agents do (defect 9)."""
        super().test_a_task_in_flight_shows_in_the_status_only()

    @pytest.mark.simulated(_OF_THE_FIELD)
    def test_the_cause_of_a_failed_apply_can_be_had(self) -> None:
        """As the contract says; ``test_agents_docker`` has what real agents do (defect 1)."""
        super().test_the_cause_of_a_failed_apply_can_be_had()

    @pytest.mark.simulated(_OF_THE_FIELD)
    def test_a_refusal_has_a_code_and_a_text(self) -> None:
        """As the contract says; ``test_agents_docker`` has what real agents do."""
        super().test_a_refusal_has_a_code_and_a_text()

    @pytest.mark.simulated(_OF_THE_FIELD)
    def test_secrets_of_the_spec_are_in_no_text(self) -> None:
        """As the contract says; ``test_agents_docker`` has what real agents do."""
        super().test_secrets_of_the_spec_are_in_no_text()

    @pytest.mark.simulated(_OF_THE_FIELD)
    def test_an_existing_agent_ignores_epochs(self) -> None:
        """As the contract says."""
        super().test_an_existing_agent_ignores_epochs()

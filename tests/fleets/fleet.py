"""``open_fleet``: the agents of a suite, of the kind that was chosen.

Decided here: what a suite may ask of its agents (``Fleet``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any, Protocol

from persys_agent.simulated.fleet import FleetNode, FleetOptions, SimulatedFleet
from persys_core.model.ids import NodeId
from persys_core.sim.agent_settings import AgentSettings
from tests.fleets.choice import CHOSEN, AgentChoice
from tests.fleets.docker import DockerFleet
from tests.servers.dockerd import Dockerd

__all__ = ["Fleet", "open_fleet"]

_HOSTS = 3


class Fleet(Protocol):
    """The verbs that both fleets have; see ``SimulatedFleet``."""

    async def add(
        self, node_id: NodeId = "", settings: AgentSettings | None = None
    ) -> FleetNode: ...

    async def kill(self, node_id: NodeId, *, wipe: bool = False) -> FleetNode: ...

    async def pause(self, node_id: NodeId) -> FleetNode: ...

    async def revive(self, node_id: NodeId) -> FleetNode: ...

    async def relocate(self, node_id: NodeId) -> FleetNode: ...

    def nodes(self) -> tuple[FleetNode, ...]: ...

    def node(self, node_id: NodeId) -> FleetNode: ...

    def model(self, node_id: NodeId) -> Any: ...


def _hosts(count: int) -> Iterator[Dockerd]:
    for number in cycle(range(count)):
        yield CHOSEN.daemons(number + 1)[number]


@asynccontextmanager
async def open_fleet(
    scheduler: str = "", *nodes: AgentSettings, hosts: int = _HOSTS
) -> AsyncIterator[Fleet]:
    """The agents that were chosen, in this process; ``hosts`` Docker daemons at most."""
    if CHOSEN.agents is AgentChoice.DOCKER:
        daemons = _hosts(hosts)
        async with DockerFleet(scheduler, lambda: next(daemons)) as real:
            for settings in nodes:
                await real.add(settings=settings)
            yield real
        return
    async with SimulatedFleet(FleetOptions(nodes=0, scheduler=scheduler)) as fleet:
        for settings in nodes:
            await fleet.add(settings=settings)
        yield fleet

"""Agents that answer slowly, and beat often, are taken at their word all the same."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest
from attrs import define, evolve

from persys_core.control.config import SchedulerConfig
from persys_core.model.ids import WorkloadId
from persys_core.model.node import Node
from persys_core.nodes.liveness import LivenessPolicy
from persys_core.ports.agents import Agents, StatusOutcome
from persys_core.ports.clock import Clock
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import machine, running_cluster

JOB = FaultPlan(workloads={"job": Behaviour(exit_after=timedelta(seconds=0.2))})


@define
class SlowAgents:
    """The agents behind, whose answers about one workload take ``delay`` to come."""

    inner: Agents
    clock: Clock
    delay: timedelta

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    async def status(
        self, node: Node, workload_id: WorkloadId, timeout: timedelta
    ) -> StatusOutcome:
        """The answer is as things are when it is asked."""
        found = await self.inner.status(node, workload_id, timeout)
        await self.clock.sleep(self.delay)
        return found


@pytest.mark.parametrize("delay", [0, 0.4, 1.5, 4])
@pytest.mark.parametrize("beat", [1, 10])
def test_a_job_that_ended_at_once_is_known_to_have(beat: int, delay: float) -> None:
    """Neither beats, which do not say how a job ended, nor answers that take longer than the time
    between two questions keep its end from being known."""

    @virtual_time()
    async def body(clock: VirtualClock) -> None:
        often = LivenessPolicy(heartbeat_interval=timedelta(seconds=beat))
        config = evolve(SchedulerConfig(), liveness=often, reconcile_interval=timedelta(seconds=1))
        async with running_cluster(
            clock,
            machine("n1"),
            config=config,
            plan=JOB,
            wrap_agents=lambda agents: cast(
                Agents, SlowAgents(agents, clock, timedelta(seconds=delay))
            ),
        ) as driver:
            await driver.apply("job")
            await driver.wait(seconds=12 + 3 * delay)
            assert await driver.status("job") == "Completed"

    body()

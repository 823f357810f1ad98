"""Agents that lost their state report what runs as orphans: it is told to them again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

from attrs import evolve

from persys_core.model.ids import WorkloadId
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport, AgentState
from persys_core.ports.agents import (
    Agents,
    ApplyOutcome,
    ApplyRequest,
    ListOutcome,
    Refused,
    StatusOutcome,
)
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, machine, running_cluster


class ForgetfulAgents:
    """Agents that remember nothing once ``lose_state`` was called, but what they are told anew.

    ``refuses``: they do not take in what they are told. ``keeps_nothing``: they say that they do.
    """

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self.has_forgotten = False
        self.refuses = False
        self.keeps_nothing = False
        self.told: list[WorkloadId] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._agents, name)

    async def apply(self, node: Node, request: ApplyRequest, timeout: timedelta) -> ApplyOutcome:
        self.told.append(request.workload_id)
        if self.has_forgotten and self.refuses:
            return Refused("[INVALID_SPEC] not any more", "invalid_spec")
        return await self._agents.apply(node, request, timeout)

    async def status(
        self, node: Node, workload_id: WorkloadId, timeout: timedelta
    ) -> StatusOutcome:
        answer = await self._agents.status(node, workload_id, timeout)
        return self._as_known(answer) if isinstance(answer, AgentReport) else answer

    async def list(self, node: Node, timeout: timedelta) -> ListOutcome:
        answer = await self._agents.list(node, timeout)
        if not isinstance(answer, Sequence):
            return answer
        return tuple(map(self._as_known, answer))

    def lose_state(self) -> None:
        self.has_forgotten = True
        self.told.clear()

    def _as_known(self, report: AgentReport) -> AgentReport:
        keeps = not (self.refuses or self.keeps_nothing)
        is_known = keeps and report.workload_id in self.told
        if not self.has_forgotten or is_known or report.state is not AgentState.RUNNING:
            return report
        return evolve(report, metadata={**report.metadata, "orphan": "true"})


class _Wrapping:
    agents: ForgetfulAgents

    def __call__(self, agents: Agents) -> Agents:
        self.agents = ForgetfulAgents(agents)
        return cast(Agents, self.agents)


async def _running(driver: Driver) -> None:
    for name in ("a", "b"):
        await driver.apply(name)
    await driver.wait(minutes=2)
    assert [await driver.status(name) for name in ("a", "b")] == ["Running", "Running"]


async def _revision(driver: Driver) -> int:
    _, fresh = await driver.cluster.api().queries.get_workload("a")
    return fresh.revision


@virtual_time()
async def test_what_an_agent_forgot_is_told_once(clock: VirtualClock) -> None:
    """It is shown Running all the while, and its run counts as one."""
    wrapping = _Wrapping()
    async with running_cluster(clock, machine("n1"), wrap_agents=wrapping) as driver:
        await _running(driver)
        before = await driver.view("a")
        events = len(await driver.events())
        wrapping.agents.lose_state()
        for _ in range(60):
            await driver.wait(seconds=1)
            assert await driver.status("a") == "Running"
        await driver.wait(minutes=20)
        assert sorted(wrapping.agents.told) == ["a", "b"]
        after = await driver.view("a")
        assert after.status.settled_since == before.status.settled_since
        assert after.status.retry == before.status.retry
        assert len(await driver.events()) == events


@virtual_time()
async def test_a_refusal_harms_nothing_that_runs(clock: VirtualClock) -> None:
    """What such an agent does not take in, for whatever reason, runs on, and is told now and then;
    no attempt is spent on it."""
    wrapping = _Wrapping()
    async with running_cluster(clock, machine("n1"), wrap_agents=wrapping) as driver:
        await _running(driver)
        wrapping.agents.refuses = True
        wrapping.agents.lose_state()
        await driver.wait(minutes=24)
        view = await driver.view("a")
        assert view.status.status == "Running"
        assert view.status.retry.attempts == 0
        assert wrapping.agents.told.count("a") == 6  # after 0:45, 1:30, 3, 6, and 12 minutes
        wrapping.agents.refuses = False
        wrapping.agents.told.clear()
        await driver.wait(minutes=45)
        assert wrapping.agents.told.count("a") == 1
        wrapping.agents.refuses = True
        wrapping.agents.told.clear()
        await driver.wait(minutes=3)
        assert wrapping.agents.told.count("a") == 3  # a new loss counts anew


@virtual_time()
async def test_what_is_never_taken_in_costs_little(clock: VirtualClock) -> None:
    """An agent that never keeps what it is told, refused or not, is told every 15 minutes in the
    end, and little is written."""
    for refuses in (True, False):
        wrapping = _Wrapping()
        async with running_cluster(clock, machine("n1"), wrap_agents=wrapping) as driver:
            await _running(driver)
            wrapping.agents.refuses = refuses
            wrapping.agents.keeps_nothing = True
            wrapping.agents.lose_state()
            await driver.wait(minutes=60)
            wrapping.agents.told.clear()
            before = await _revision(driver)
            await driver.wait(minutes=60)
            assert wrapping.agents.told.count("a") in (3, 4, 5)
            assert await _revision(driver) - before <= 20
            assert await driver.status("a") == "Running"


@virtual_time()
async def test_what_stops_meanwhile_is_started_at_once(clock: VirtualClock) -> None:
    """That its agent is told of it seldom holds up no start, nor what follows one."""
    wrapping = _Wrapping()
    quiet = evolve(machine("n1"), reconcile_interval=timedelta(days=1))
    async with running_cluster(clock, quiet, wrap_agents=wrapping) as driver:
        await _running(driver)
        wrapping.agents.refuses = True
        wrapping.agents.lose_state()
        await driver.wait(minutes=60)
        assert (await driver.view("a")).status.reapply.attempts > 5
        wrapping.agents.refuses = False
        wrapping.agents.told.clear()
        (model,) = driver.cluster.machines
        model.remove_below("a", clock.now())
        await driver.wait(seconds=30)
        assert wrapping.agents.told == ["a"]
        assert (await driver.view("a")).status.reapply.attempts <= 1

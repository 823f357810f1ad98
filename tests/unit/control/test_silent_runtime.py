"""A node that beats and whose Docker is silent: what it runs goes on unseen, and nobody ends it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from persys_core.model.ids import NodeId
from persys_core.model.observation import AgentState
from persys_core.model.states import RestartPolicy, WorkloadType
from persys_core.sim.agent_runtime import Look
from persys_core.sim.agent_settings import AgentSettings, existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, registration, running_cluster

pytestmark = pytest.mark.slow

SILENT = Look(AgentState.UNKNOWN, "dockerd does not answer; what it runs goes on unseen")
both_agents = pytest.mark.parametrize("agent", [machine, existing_agent])


def _falls_silent(driver: Driver, patch: pytest.MonkeyPatch) -> None:
    """The runtime of n1 answers no question; what it runs runs on."""
    runtime = driver.cluster.machines.model("n1")._runtime
    patch.setattr(runtime, "look", lambda *_: SILENT)


@both_agents
@virtual_time()
async def test_what_ran_is_left_alone(
    clock: VirtualClock, agent: Callable[[NodeId], AgentSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an hour of silence counts as no failure, costs no attempt and ends nothing; afterwards
    all runs as before, with nothing sent."""
    spec = container(restart=RestartPolicy.ALWAYS)
    async with running_cluster(clock, agent("n1")) as driver:
        await driver.apply("w", spec)
        await driver.wait(minutes=2)
        before = driver.calls("apply"), driver.calls("delete")
        with monkeypatch.context() as patch:
            _falls_silent(driver, patch)
            await driver.wait(minutes=30)
            view = await driver.view("w")
            assert (view.status.status, view.status.retry.attempts) == ("Running", 0)
            assert view.assignment is not None
            assert not view.assignment.released
        await driver.wait(minutes=2)
        assert await driver.status("w") == "Running"
        assert (driver.calls("apply"), driver.calls("delete")) == before
        assert "w" in driver.cluster.machines.model("n1").running(clock.now())


@virtual_time()
async def test_what_was_just_sent_is_not_to_blame(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can say whether it started: it is tried again without end, and spends no attempt."""
    async with running_cluster(clock, machine("n1")) as driver:
        with monkeypatch.context() as patch:
            _falls_silent(driver, patch)
            await driver.apply("w")
            await driver.wait(minutes=20)
            view = await driver.view("w")
            assert view.status.retry.attempts == 0
            assert view.status.failure is not None
            assert view.status.failure.code == "runtime_silent"
            assert "dockerd does not answer" in view.status.failure.message
        await driver.wait(minutes=10)
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_an_agent_that_offers_a_type_no_more_is_told_of(clock: VirtualClock) -> None:
    """Once for all, and as the reason of what runs there, without a write per workload."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(minutes=1)
        node = (await driver.cluster.api().queries.get_node("n1"))[0].node
        offer = evolve(
            registration("n1"), endpoint=node.endpoint, workload_types=frozenset({WorkloadType.VM})
        )
        await driver.cluster.api().admission.register_node(offer)
        [told] = await driver.events("NodeTypesChanged")
        assert (told.node_id, told.reason) == ("n1", "offers no more: compose, container")
        status = (await driver.view("w")).status
        assert status.status == "Running"
        assert status.reason is not None
        assert status.reason.code == "runtime_silent"
        assert "n1 offers no container now" in status.reason.message
        await driver.cluster.api().admission.register_node(
            evolve(offer, workload_types=frozenset(WorkloadType))
        )
        reason = (await driver.events("NodeTypesChanged"))[-1].reason
        assert reason == "offers again: compose, container, microvm"
        assert (await driver.view("w")).status.reason is None

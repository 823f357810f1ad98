"""An update that does not fit its node, while nothing of the old revision runs there any more."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.model.drift import DriftType
from persys_core.model.ids import NodeId
from persys_core.model.spec import ManagedVolume, WorkloadSpec
from persys_core.model.states import DesiredState
from persys_core.model.workload import Tombstone
from persys_core.placement.explain import Verdict
from persys_core.ports.agents import DeleteRequest
from persys_core.ports.cluster_store import Kind
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.agent_settings import AgentSettings, existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

SMALL = container(cpu=1000)
LARGE = container("nginx:2", cpu=3000)


def _existing(node_id: NodeId) -> AgentSettings:
    return evolve(existing_agent(node_id), cpu_millicores=4000)


both_agents = pytest.mark.parametrize("agent", [machine, _existing])


def _graves(driver: Driver) -> list[Tombstone]:
    return list(driver.cluster.api().view.values(Kind.TOMBSTONE, Tombstone))


def _vanish(driver: Driver, workload_id: str = "w") -> None:
    """Delete past the scheduler."""
    driver.cluster.machines.model("n1").delete(DeleteRequest(workload_id, 0), driver.clock.now())


async def _code(driver: Driver) -> str:
    reason = (await driver.view("w")).status.reason
    return reason.code if reason else ""


@asynccontextmanager
async def _waiting_to_grow(
    clock: VirtualClock,
    agent: Callable[[NodeId], AgentSettings] = machine,
    *,
    old: WorkloadSpec = SMALL,
    new: WorkloadSpec = LARGE,
    plan: FaultPlan | None = None,
) -> AsyncIterator[Driver]:
    """``w`` runs with 1000 of 4000 mCPU of ``n1``, ``other`` with 2000; ``w`` is to have 3000."""
    async with running_cluster(clock, agent("n1"), plan=plan) as driver:
        await driver.apply("other", container(cpu=2000))
        await driver.apply("w", old)
        await driver.wait(minutes=1)
        await driver.apply("w", new)
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await _code(driver)) == ("Pending", "resize:cpu")
        yield driver


@both_agents
@virtual_time()
async def test_what_vanished_goes_to_a_node_that_fits(
    clock: VirtualClock, agent: Callable[[NodeId], AgentSettings]
) -> None:
    """It gives up its share, says what is missing, and runs as soon as another node has room."""
    async with _waiting_to_grow(clock, agent) as driver:
        _vanish(driver)
        await driver.wait(minutes=2)
        assert await driver.node_of("w") == ""
        assert (await driver.status("w"), await _code(driver)) == ("Pending", "cpu")
        assert (await driver.cluster.api().queries.explain("w")).verdict is Verdict.UNSCHEDULABLE
        driver.cluster.add_machine(agent("n2"))
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        assert not _graves(driver)


@virtual_time()
async def test_another_node_that_fits_takes_it_at_once(clock: VirtualClock) -> None:
    """One step, told with the reason; the old node owes nothing for long."""
    async with _waiting_to_grow(clock) as driver:
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(minutes=1)
        assert await driver.node_of("w") == "n1"
        _vanish(driver)
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        (told,) = await driver.events("Rescheduled", "w")
        assert "no room for the new revision" in told.reason
        assert not _graves(driver)


@virtual_time()
async def test_the_loss_of_the_old_revision_is_told_as_drift(clock: VirtualClock) -> None:
    """The agent should still have it, and does not."""
    async with _waiting_to_grow(clock) as driver:
        _vanish(driver)
        await driver.wait(minutes=2)
        (told,) = await driver.events("DriftDetected", "w")
        assert told.reason == DriftType.MISSING_ON_AGENT


@pytest.mark.slow
@virtual_time()
async def test_an_old_revision_that_runs_stays(clock: VirtualClock) -> None:
    """Nobody moves what runs, although another node has room for the new revision."""
    async with _waiting_to_grow(clock) as driver:
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(minutes=30)
        assert (await driver.node_of("w"), await _code(driver)) == ("n1", "resize:cpu")
        assert "w" in driver.cluster.machines.model("n1").running(clock.now())
        assert driver.calls("delete", "w") == 0
        assert not await driver.events("DriftDetected", "w")


@virtual_time()
async def test_an_old_revision_that_failed_makes_way(clock: VirtualClock) -> None:
    """A crashed copy holds nothing that is worth waiting for."""
    plan = FaultPlan(run_for=(timedelta(minutes=3), timedelta(minutes=3)))
    async with _waiting_to_grow(clock, old=container("crash"), plan=plan) as driver:
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(minutes=5)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        assert not _graves(driver)


@virtual_time()
async def test_what_was_stopped_and_grew_starts_where_it_fits(clock: VirtualClock) -> None:
    """Its share on the old node is too small for what is to be started."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("other", container(cpu=2000))
        await driver.apply("w", SMALL)
        await driver.wait(minutes=1)
        await driver.desire("w", DesiredState.STOPPED)
        await driver.wait(minutes=1)
        driver.cluster.add_machine(machine("n2"))
        await driver.apply("w", LARGE)
        await driver.wait(minutes=1)
        await driver.desire("w", DesiredState.RUNNING)
        await driver.wait(minutes=2)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")


@pytest.mark.slow
@virtual_time()
async def test_local_data_keeps_it_on_its_node(clock: VirtualClock) -> None:
    """Elsewhere it would be without its data, so it waits for room here."""
    volumes = (ManagedVolume("data", "local", 1),)
    old, new = (container(cpu=cpu, volumes=volumes) for cpu in (1000, 3000))
    async with _waiting_to_grow(clock, old=old, new=new) as driver:
        driver.cluster.add_machine(machine("n2"))
        _vanish(driver)
        await driver.wait(minutes=10)
        assert (await driver.node_of("w"), await _code(driver)) == ("n1", "resize:cpu")
        await driver.cluster.api().admission.delete_workload("other", force=False)
        await driver.wait(minutes=2)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")


@virtual_time()
async def test_the_share_grows_in_place_where_it_can(clock: VirtualClock) -> None:
    """Room that came free at the same time is taken before anything moves."""
    async with _waiting_to_grow(clock) as driver:
        await driver.cluster.api().admission.delete_workload("other", force=True)
        _vanish(driver)
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(minutes=2)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")

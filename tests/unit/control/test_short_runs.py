"""Compose applications and machines that end by themselves: backoff, budget, and who is spared."""

from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, SpecBody, VmSpec, WorkloadSpec
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_core.ports.agents import ApplyRequest
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.agent_journal import Happening
from persys_core.sim.agent_settings import AgentSettings, existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

ONE = Resources.of(cpu_millicores=500, memory_mb=128)
SOUND = WorkloadSpec(WorkloadType.COMPOSE, ONE, ComposeSpec("services:\n  a:\n    image: web\n"))
NEVER_ACTS = timedelta(days=1)

QUIET = evolve(machine("n1"), reconcile_interval=NEVER_ACTS)
"""An agent that does nothing by itself."""

agents = pytest.mark.parametrize(
    "settings",
    [
        QUIET,
        machine("n1"),
        evolve(existing_agent("n1"), cpu_millicores=4000),
    ],
    ids=["no-local-loop", "our-agent", "existing-agent"],
)


def _starts(driver: Driver) -> int:
    return sum(
        entry.what == Happening.STARTED
        for model in driver.cluster.machines
        for entry in model.journal.entries
    )


def _ending(minutes: float) -> FaultPlan:
    """It ends by itself after each start."""
    return FaultPlan(workloads={"w": Behaviour(exit_after=timedelta(minutes=minutes))})


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (WorkloadType.COMPOSE, ComposeSpec("services:\n  a:\n    image: job:1\n")),
        (WorkloadType.VM, VmSpec(1, 512, os_image="job:1")),
    ],
    ids=["compose", "vm"],
)
@agents
@virtual_time()
async def test_what_ends_again_and_again_is_given_up(
    clock: VirtualClock, settings: AgentSettings, kind: WorkloadType, body: SpecBody
) -> None:
    """Each short run spends an attempt; after the budget it is Failed, is told to rest, and is not
    started any more."""
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w", WorkloadSpec(kind, ONE, body))
        await driver.wait(minutes=40)
        view = await driver.view("w")
        assert view.status.status == "Failed"
        assert view.status.retry.attempts == 5
        assert view.status.reason is not None
        assert view.status.reason.code == "exited"
        assert (
            "given up after 5 attempts: it stopped by itself after " in view.status.reason.message
        )
        starts = _starts(driver)
        assert 5 <= starts <= 12
        await driver.wait(minutes=30)
        assert _starts(driver) == starts
        assert len(await driver.events("WorkloadFailed", "w")) == 1


@virtual_time()
async def test_the_waits_between_short_runs_grow(clock: VirtualClock) -> None:
    """5, 10, 20, 40 s, as after every other failure."""
    async with running_cluster(clock, QUIET, plan=_ending(2)) as driver:
        await driver.apply("w", SOUND)
        waits = []
        for _ in range(120):
            await driver.wait(seconds=5)
            status = (await driver.view("w")).status
            if status.failure is not None and status.retry.next_at is not None:
                waits.append((status.retry.next_at - status.failure.at).total_seconds())
        assert sorted(set(waits)) == [5, 10, 20, 40]


@virtual_time()
async def test_an_end_after_a_stable_run_is_made_good_at_once(clock: VirtualClock) -> None:
    """However often it happens: ten minutes make the budget new, whatever was spent before."""
    faults = {"w": Behaviour(create_error="read timed out")}
    async with running_cluster(clock, QUIET, plan=FaultPlan(workloads=faults)) as driver:
        await driver.apply("w", WorkloadSpec(WorkloadType.VM, ONE, VmSpec(1, 512, os_image="a")))
        await driver.wait(seconds=15)
        assert (await driver.view("w")).status.retry.attempts > 0
        faults["w"] = Behaviour(exit_after=timedelta(minutes=11))
        await driver.wait(minutes=15)
        for _ in range(100):
            await driver.wait(minutes=1)
            status = (await driver.view("w")).status
            assert status.status in ("Running", "Scheduled")
            assert status.retry.attempts == 0
        assert _starts(driver) >= 9


@virtual_time()
async def test_a_stop_that_its_agent_was_told_of_is_no_failure(clock: VirtualClock) -> None:
    """A user's stop and start, and a stop past the scheduler by way of the agent."""
    async with running_cluster(clock, QUIET) as driver:
        await driver.apply("w", SOUND)
        await driver.wait(minutes=1)
        for _ in range(3):
            await driver.desire("w", DesiredState.STOPPED)
            await driver.wait(minutes=1)
            await driver.desire("w", DesiredState.RUNNING)
            await driver.wait(minutes=1)
        revision = (await driver.view("w")).workload.revision_id
        stop = ApplyRequest("w", revision, DesiredState.STOPPED, SOUND, 0)
        driver.cluster.machines.model("n1").apply(stop, clock.now())
        await driver.wait(minutes=1)
        status = (await driver.view("w")).status
        assert (status.status, status.retry.attempts) == ("Running", 0)
        assert _starts(driver) == 5


@pytest.mark.parametrize("policy", [RestartPolicy.ALWAYS, RestartPolicy.UNLESS_STOPPED])
@agents
@virtual_time()
async def test_containers_that_their_runtime_restarts_are_left_to_it(
    clock: VirtualClock, settings: AgentSettings, policy: RestartPolicy
) -> None:
    """A job under such a policy ends and begins for ever, and nobody counts."""
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w", container("job", restart=policy))
        await driver.wait(minutes=30)
        status = (await driver.view("w")).status
        assert (status.status, status.retry.attempts) == ("Running", 0)
        # Existing agents stop what they take for stuck once in a while, and one of us starts it.
        assert driver.calls("apply", "w") <= 4
        assert _starts(driver) > 25

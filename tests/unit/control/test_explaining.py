"""Every *no* explains itself, in numbers, and nothing floods the log."""

import pytest
from attrs import evolve

from persys_core.control.requests import DrainNode, NodeIntentChange
from persys_core.model.states import WorkloadType
from persys_core.placement.explain import ReasonCode, Verdict
from persys_core.sim.agent_settings import Latency
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import container, machine, running_cluster

pytestmark = pytest.mark.slow


@virtual_time()
async def test_no_nodes(clock: VirtualClock) -> None:
    """C01: without any node the reason is exactly that; it clears once placed."""
    async with running_cluster(clock) as driver:
        answer = await driver.apply("w")
        assert answer.explanation is not None
        assert answer.explanation.reasons[0].code is ReasonCode.NO_NODES
        view = await driver.view("w")
        assert view.status.reason is not None
        assert view.status.reason.code == "no_nodes"
        driver.cluster.add_machine(machine("n1"))
        await driver.wait(seconds=30)
        placed = await driver.cluster.api().queries.explain("w")
        assert (placed.verdict, placed.node_id) == (Verdict.PLACED, "n1")
        assert (await driver.view("w")).status.reason is None


@virtual_time()
async def test_five_nodes_five_reasons(clock: VirtualClock) -> None:
    """C01: five nodes that fail for five reasons give five codes, with asked and free where it
    is a quantity, since when, and what happens next."""
    nodes = (
        machine("cpu", cpu=500),
        machine("memory", memory=64),
        evolve(machine("types"), workload_types=frozenset({WorkloadType.VM})),
        evolve(machine("plain"), labels={"zone": "b"}),
        evolve(machine("drivers"), labels={"zone": "a"}),
    )
    labelled = tuple(
        evolve(each, labels={"zone": "a"}) if each.node_id != "plain" else each for each in nodes
    )
    from persys_core.model.spec import ManagedVolume

    spec = container(
        metadata={"persys.scheduling.node_selector.zone": "a"},
        volumes=(ManagedVolume("v", driver="nfs", mount_path="/v"),),
    )
    with_nfs = tuple(
        evolve(each, storage_drivers=frozenset({"local", "nfs"}))
        if each.node_id != "drivers"
        else each
        for each in labelled
    )
    async with running_cluster(clock, *with_nfs) as driver:
        await driver.apply("w", spec)
        explanation = await driver.cluster.api().queries.explain("w")
        tallies = {tally.code: tally for tally in explanation.reasons}
        assert set(tallies) == {"cpu", "memory", "workload_type", "selector", "storage_driver"}
        assert (tallies[ReasonCode.CPU].asked, tallies[ReasonCode.CPU].free_max) == (1000, 500)
        assert (tallies[ReasonCode.MEMORY].asked, tallies[ReasonCode.MEMORY].free_max) == (128, 64)
        assert tallies[ReasonCode.CPU].unit == "millicores"
        assert {tally.examples[0].node_id for tally in explanation.reasons} == {
            "cpu",
            "memory",
            "types",
            "plain",
            "drivers",
        }
        assert explanation.since is not None
        assert explanation.next_step


@pytest.mark.slow
@virtual_time()
async def test_reasons_are_told_once_a_minute_at_most(clock: VirtualClock) -> None:
    """V02: twenty minutes of rejections while nodes join give at most one event a minute, each
    of at most 1 KiB, with the reasons counted."""
    nodes = tuple(machine(f"node-{number:03}", cpu=500) for number in range(20))
    async with running_cluster(clock, *nodes) as driver:
        await driver.apply("w", container(cpu=1000))
        for minute in range(20):
            driver.cluster.add_machine(machine(f"late-{minute:03}", cpu=500 + minute))
            await driver.wait(minutes=1)
        told = await driver.events("WorkloadUnschedulable", "w")
        assert len(told) <= 21
        assert all(len(event.reason.encode()) <= 1024 for event in told)
        assert told[-1].reason.startswith("0/40")
        assert "cpu (asked 1000, at most" in told[-1].reason


@pytest.mark.slow
@virtual_time()
async def test_halted_deferred_and_resting_are_explained(clock: VirtualClock) -> None:
    """Each state says what it is and what happens next."""
    async with running_cluster(clock, machine("n1")) as driver:
        queries = driver.cluster.api().queries
        await driver.apply("broken", container("missing"))
        await driver.wait(seconds=4)
        deferred = await queries.explain("broken")
        assert deferred.verdict is Verdict.DEFERRED
        assert deferred.next_try_at is not None
        await driver.wait(minutes=10)
        halted = await queries.explain("broken")
        assert halted.verdict is Verdict.HALTED
        assert "retried" in halted.next_step
        await driver.apply("job", container("exit0"))
        await driver.wait(minutes=3)
        assert (await queries.explain("job")).verdict is Verdict.NOT_NEEDED


@virtual_time()
async def test_what_leaves_a_drained_node_is_explained(clock: VirtualClock) -> None:
    """Moving, blocked or pinned: each with what happens next, at every second of a drain."""
    slow = evolve(machine("n2", cpu=1000), start=Latency.of(5))
    async with running_cluster(clock, machine("n1")) as driver:
        queries = driver.cluster.api().queries
        local = {"persys.scheduling.persistence_class": "node-local"}
        await driver.apply("moves", container(cpu=1000))
        await driver.apply("large", container(cpu=2000))
        await driver.apply("local", container(cpu=100, metadata=local))
        await driver.wait(seconds=20)
        driver.cluster.add_machine(slow)
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(DrainNode(NodeIntentChange("n1", "new kernel")))
        seen = set()
        for _ in range(120):
            await driver.wait(milliseconds=100)
            explanation = await queries.explain("moves")
            assert explanation.next_step
            seen.add(explanation.verdict)
            if explanation.verdict is Verdict.MOVING and explanation.node_id == "n2":
                assert "from n1 to n2; the old copy runs on" in explanation.summary
        assert seen >= {Verdict.MOVING, Verdict.PLACED}
        large = await queries.explain("large")
        assert (large.verdict, large.node_id) == (Verdict.DEFERRED, "n1")
        assert "n1 is drained: new kernel; no other node takes it" in large.summary
        assert "cpu" in large.summary
        pinned = await queries.explain("local")
        assert (pinned.verdict, pinned.reasons[0].code) == (Verdict.PINNED, "local_data")
        assert "discard" in pinned.next_step


@virtual_time()
async def test_work_on_a_silent_node_is_explained(clock: VirtualClock) -> None:
    """Before the grace is over, too, nothing is promised that will not happen."""
    async with running_cluster(clock, machine("n1")) as driver:
        queries = driver.cluster.api().queries
        local = {"persys.scheduling.persistence_class": "node-local"}
        await driver.apply("free", container(cpu=100))
        await driver.apply("local", container(cpu=100, metadata=local))
        await driver.wait(seconds=20)
        driver.cluster.machines.kill("n1")
        await driver.wait(seconds=60)
        free, local_one = await queries.explain("free"), await queries.explain("local")
        assert (free.verdict, local_one.verdict) == (Verdict.MOVING, Verdict.PINNED)
        assert "its workloads may move at" in free.summary
        assert "comes back" in free.next_step
        await driver.wait(minutes=5)
        assert (await queries.explain("free")).verdict is Verdict.UNSCHEDULABLE
        assert (await queries.explain("local")).verdict is Verdict.PINNED


@virtual_time()
async def test_an_agent_that_cannot_be_called_is_explained(clock: VirtualClock) -> None:
    """Since when, and when it is tried again."""
    async with running_cluster(clock, machine("n1")) as driver:
        driver.cluster.machines.network.cut("n1", to_node=True, from_node=False)
        await driver.apply("w", container())
        await driver.wait(seconds=30)
        explanation = await driver.cluster.api().queries.explain("w")
        assert explanation.verdict is Verdict.DEFERRED
        assert "n1" in explanation.summary
        assert explanation.since is not None
        assert "tried again" in explanation.next_step

"""RemoveNode: refused while work is there, and what becomes of the work where it is forced."""

from datetime import timedelta

import pytest

from persys_core.control.requests import DrainNode, NodeIntentChange, RemoveNode
from persys_core.model.errors import NotFoundError
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.ports.cluster_store import Key, Kind
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster


def _remove(node_id: str = "n1", *, force: bool = False) -> RemoveNode:
    return RemoveNode(NodeIntentChange(node_id, "sold", "ann"), force)


async def _one_on_n1(driver: Driver) -> None:
    await driver.apply("w", container())
    await driver.wait(seconds=20)
    assert await driver.node_of("w") == "n1"
    driver.cluster.add_machine(machine("n2"))
    await driver.wait(seconds=5)


@virtual_time()
async def test_a_node_with_work_is_not_removed(clock: VirtualClock) -> None:
    """The answer names the work, and nothing changes."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _one_on_n1(driver)
        answer = await driver.cluster.api().nodes.remove(_remove())
        assert (answer.accepted, answer.assigned, answer.beats) == (False, ("w",), True)
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")
        assert not await driver.events("NodeLeft")


@virtual_time()
async def test_a_drained_node_that_went_away_is_forgotten(clock: VirtualClock) -> None:
    """Record and ledger are gone, the event says who did it, and a second order finds nothing."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _one_on_n1(driver)
        nodes = driver.cluster.api().nodes
        await nodes.drain(DrainNode(NodeIntentChange("n1", "sold")))
        await driver.wait(minutes=1)
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=1)
        answer = await nodes.remove(_remove())
        assert (answer.accepted, answer.assigned, answer.owed) == (True, (), ())
        assert driver.cluster.backend.read(Key.node("n1")) is None
        assert driver.cluster.backend.read(Key.allocation("n1")) is None
        (left,) = await driver.events("NodeLeft")
        assert (left.node_id, left.details["source"]) == ("n1", "ann")
        with pytest.raises(NotFoundError):
            await nodes.remove(_remove())
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")


@virtual_time()
async def test_work_of_a_node_removed_by_force_is_placed_elsewhere(clock: VirtualClock) -> None:
    """At once, not after the grace of a silent node, and the lost node owes no delete."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _one_on_n1(driver)
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=1)
        answer = await driver.cluster.api().nodes.remove(_remove(force=True))
        assert (answer.accepted, answer.assigned, answer.beats) == (True, ("w",), False)
        await driver.wait(seconds=30)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)


@virtual_time()
async def test_the_ledger_of_a_node_removed_by_force_goes_with_its_last_share(
    clock: VirtualClock,
) -> None:
    """Whatever the node had, running, ended, resting or owed, leaves no empty ledger behind."""
    async with running_cluster(clock, machine("n1")) as driver:
        for name, spec in (
            ("runs", container()),
            ("rests", container()),
            ("job", container("job")),
        ):
            await driver.apply(name, spec)
        await driver.wait(minutes=1)
        await driver.desire("rests", DesiredState.STOPPED)
        assert await driver.status("job") == "Completed"
        await driver.wait(minutes=1)
        driver.cluster.machines.kill("n1")
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(minutes=4)
        assert driver.cluster.api().view.buried_at("n1")
        await driver.cluster.api().nodes.remove(_remove(force=True))
        await driver.wait(minutes=1)
        assert await driver.node_of("runs") == "n2"
        assert driver.cluster.backend.read(Key.allocation("n1")) is None


@virtual_time()
async def test_only_ended_work_leaves_no_ledger_either(clock: VirtualClock) -> None:
    """It holds no share, so nothing would ever write that ledger again."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("job", container("job"))
        await driver.wait(minutes=1)
        assert await driver.status("job") == "Completed"
        driver.cluster.machines.kill("n1")
        await driver.cluster.api().nodes.remove(_remove(force=True))
        await driver.wait(minutes=1)
        assert driver.cluster.backend.read(Key.allocation("n1")) is None


@virtual_time()
async def test_a_node_that_is_removed_while_its_agent_lives_registers_again(
    clock: VirtualClock,
) -> None:
    """It is a new node: without the order that the old one had, and it takes work."""
    async with running_cluster(clock, machine("n1")) as driver:
        nodes = driver.cluster.api().nodes
        await nodes.cordon(NodeIntentChange("n1", "sold"))
        assert (await nodes.remove(_remove())).beats
        await driver.apply("w", container())
        await driver.wait(minutes=1)
        view, _ = await driver.cluster.api().queries.get_node("n1")
        assert not view.node.intent.cordoned
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_a_placement_and_a_removal_do_not_cross(clock: VirtualClock) -> None:
    """Whichever commits first, the workload ends on a node that exists."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        for n in range(10):
            await driver.apply(f"w{n}", container(cpu=100))
            await driver.cluster.api().nodes.remove(_remove(f"n{n % 2 + 1}"))
            await clock.sleep(timedelta(seconds=11))
        await driver.wait(minutes=2)
        for n in range(10):
            assert await driver.status(f"w{n}") == "Running"


@virtual_time()
async def test_no_call_to_a_removed_node_is_waited_for(clock: VirtualClock) -> None:
    """What rests and had an open call there has none once the node is forgotten (simulator)."""
    async with running_cluster(clock, machine("n1")) as driver:
        driver.cluster.machines.network.cut("n1", to_node=True, from_node=False)
        await driver.apply("w", container())
        await driver.wait(seconds=12)
        await driver.desire("w", DesiredState.STOPPED)
        await driver.apply("w", container("nginx:2"))
        driver.cluster.machines.kill("n1")
        await driver.wait(seconds=45)
        intent = (await driver.view("w")).status.intent
        assert intent is not None
        assert intent.unanswered
        assert (await driver.cluster.api().nodes.remove(_remove(force=True))).accepted
        await driver.wait(seconds=30)
        view = await driver.view("w")
        assert view.assignment is None
        assert (view.status.status, view.status.intent) == (WorkloadStatus.STOPPED, None)

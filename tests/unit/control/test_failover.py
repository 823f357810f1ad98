"""Nodes that are lost: what moves, how fast, what stays, and what comes back."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from attrs import evolve

from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, ManagedVolume, VmSpec, VolumeMount, WorkloadSpec
from persys_core.model.states import WorkloadType
from persys_core.nodes.eviction import EvictionPolicy
from persys_core.ports.cluster_store import Commit, Committed, Conflict, Kind
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

SMALL = container(cpu=100)


def _vm(**metadata: str) -> WorkloadSpec:
    size = Resources.of(cpu_millicores=1000, memory_mb=512)
    return WorkloadSpec(WorkloadType.VM, size, VmSpec(1, 512, os_image="linux"), metadata)


def _classed(persistence: str) -> WorkloadSpec:
    return container(metadata={"persys.scheduling.persistence_class": persistence})


def _mounting(*, read_only: bool) -> WorkloadSpec:
    spec = container()
    assert isinstance(spec.body, ContainerSpec)
    mount = VolumeMount("/srv/data", "/data", read_only)
    return evolve(spec, body=evolve(spec.body, volumes=(mount,)))


async def _moved(driver: Driver) -> dict[str, list[float]]:
    """From which nodes work was moved, and when, in seconds of the run."""
    moves: dict[str, list[float]] = {}
    for event in await driver.events("Rescheduled"):
        at = (event.timestamp - driver.cluster.machines.clock.now()).total_seconds()
        moves.setdefault(event.details["previous_node"], []).append(at)
    return moves


STAYS = [
    pytest.param(_classed("node-local"), id="node-local"),
    pytest.param(_vm(), id="vm"),
    pytest.param(container(volumes=(ManagedVolume("v", mount_path="/v"),)), id="local-volume"),
    pytest.param(_mounting(read_only=False), id="host-path"),
]
MOVES = [
    pytest.param(container(), id="default"),
    pytest.param(_classed("ephemeral"), id="ephemeral"),
    pytest.param(_classed("shared-storage"), id="shared-storage"),
    pytest.param(_mounting(read_only=True), id="read-only-host-path"),
    pytest.param(_vm(**{"persys.scheduling.persistence_class": "ephemeral"}), id="vm-ephemeral"),
    pytest.param(_vm(**{"persys.scheduling.allow_move": "true"}), id="vm-allow-move"),
]


@pytest.mark.parametrize("spec", MOVES)
@virtual_time()
async def test_what_keeps_no_data_on_its_node_moves(
    clock: VirtualClock, spec: WorkloadSpec
) -> None:
    """Without data on the lost node a workload is started elsewhere, once."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", spec)
        await driver.wait(seconds=30)
        driver.cluster.add_machine(machine("n2"))
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=5)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        assert driver.calls("apply", "w", "n2") == 1


@pytest.mark.parametrize("spec", STAYS)
@virtual_time()
async def test_what_keeps_its_data_on_its_node_waits_for_it(
    clock: VirtualClock, spec: WorkloadSpec
) -> None:
    """Defects A8, J11: it is not started elsewhere without its data. That is told once and
    written once, however long the node is away; when it is back, so is the workload."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", spec)
        await driver.wait(seconds=30)
        driver.cluster.add_machine(machine("n2"))
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=10)
        revision = driver.cluster.backend.revision
        await driver.wait(hours=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Pending", "n1")
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert reason.code == "local_data"
        assert driver.calls("apply", "w", "n2") == 0
        assert len(await driver.events("RescheduleSkipped", "w")) == 1
        assert driver.cluster.backend.revision == revision
        driver.cluster.machines.revive("n1")
        await driver.wait(minutes=5)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")


@virtual_time()
async def test_a_second_loss_is_told_again(clock: VirtualClock) -> None:
    """One event per change: the node that was back and is lost anew is news."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", _classed("node-local"))
        await driver.wait(seconds=30)
        for _ in range(2):
            driver.cluster.machines.kill("n1")
            await driver.wait(minutes=10)
            driver.cluster.machines.revive("n1")
            await driver.wait(minutes=10)
        assert len(await driver.events("RescheduleSkipped", "w")) == 2


@virtual_time()
async def test_volumes_and_their_drivers_count_on_a_move_too(clock: VirtualClock) -> None:
    """Defect A1: the stored spec keeps its managed volumes, so the next node must have their
    driver, and its agent is told of them."""
    shared = ManagedVolume("v", "nfs", 1, "ReadWriteMany", mount_path="/v")
    drivers = frozenset({"local", "nfs"})
    first, third = (evolve(machine(name), storage_drivers=drivers) for name in ("n1", "n3"))
    async with running_cluster(clock, first) as driver:
        await driver.apply("w", container(volumes=(shared,)))
        await driver.wait(seconds=30)
        driver.cluster.add_machine(machine("n2", cpu=64_000))
        driver.cluster.add_machine(third)
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=5)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n3")
        assert driver.cluster.machines.model("n3").volumes(clock.now()) == {"nfs:v"}


@virtual_time()
async def test_a_move_releases_no_volume(clock: VirtualClock) -> None:
    """Defect A2: the delete that the old node owes leaves the data there, policy Delete or not;
    only the user's own delete takes it away."""
    shared = ManagedVolume("v", "nfs", 1, "ReadWriteMany", mount_path="/v", retain_policy="Delete")
    drivers = frozenset({"local", "nfs"})
    first, second = (evolve(machine(name), storage_drivers=drivers) for name in ("n1", "n2"))
    async with running_cluster(clock, first) as driver:
        machines = driver.cluster.machines
        await driver.apply("w", container(volumes=(shared,)))
        await driver.wait(seconds=30)
        driver.cluster.add_machine(second)
        machines.kill("n1")
        await driver.wait(minutes=5)
        machines.revive("n1")
        await driver.wait(minutes=3)
        assert driver.calls("delete", "w", "n1") == 1
        assert machines.model("n1").running(clock.now()) == {}
        assert machines.model("n1").volumes(clock.now()) == {"nfs:v"}
        assert (await driver.view("w")).workload.spec.managed_volumes == (shared,)
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(minutes=1)
        assert machines.model("n2").volumes(clock.now()) == frozenset()


@virtual_time()
async def test_an_outage_of_our_own_moves_nothing(clock: VirtualClock) -> None:
    """N01: ten minutes without any scheduler and any node; the scheduler comes back first: no
    work moves, since each node has a full grace from then on."""
    nodes = [machine(f"n{number}") for number in range(10)]
    async with running_cluster(clock, *nodes) as driver:
        for number in range(10):
            await driver.apply(f"w{number}", SMALL)
        await driver.wait(seconds=30)
        for settings in nodes:
            driver.cluster.machines.network.cut(settings.node_id)
        await driver.cluster.crash(driver.cluster.replicas[0])
        await driver.wait(minutes=10)
        calls = driver.calls("apply"), driver.calls("delete")
        await driver.cluster.start_replica()
        await driver.wait(minutes=2, seconds=50)
        assert await _moved(driver) == {}
        for settings in nodes:
            driver.cluster.machines.network.cut(settings.node_id, to_node=False, from_node=False)
        await driver.wait(minutes=10)
        assert (driver.calls("apply"), driver.calls("delete")) == calls
        assert [await driver.status(f"w{number}") for number in range(10)] == ["Running"] * 10


@virtual_time()
async def test_a_mass_loss_moves_nothing_and_is_told_once(clock: VirtualClock) -> None:
    """N01, decisions §3: nine of ten nodes fall silent together: no work moves, one event, the
    summary says so. Once enough are back the rest moves, one node per ten seconds."""
    nodes = [machine(f"n{number}") for number in range(10)]
    async with running_cluster(clock, *nodes) as driver:
        for number in range(10):
            await driver.apply(f"w{number}", SMALL)
        await driver.wait(seconds=30)
        for number in range(9):
            driver.cluster.machines.kill(f"n{number}")
        await driver.wait(hours=1)
        assert await _moved(driver) == {}
        assert len(await driver.events("MassNodeLoss")) == 1
        summary, _ = await driver.cluster.api().queries.summary()
        assert "mass node loss: 9 of 10 nodes" in " ".join(summary.problems)
        for number in range(5):
            driver.cluster.machines.revive(f"n{number}")
        await driver.wait(minutes=5)
        moved = await _moved(driver)
        assert sorted(moved) == ["n5", "n6", "n7", "n8"]
        summary, _ = await driver.cluster.api().queries.summary()
        assert list(summary.problems) == []
        assert len(await driver.events("MassNodeLoss")) == 1


@virtual_time()
async def test_lost_nodes_are_left_one_by_one(clock: VirtualClock) -> None:
    """Decisions §3: three of ten nodes are lost at once; at most one more of them is left in any
    ten seconds, and all of them in the end."""
    nodes = [machine(f"n{number}") for number in range(10)]
    async with running_cluster(clock, *nodes) as driver:
        for number in range(30):
            await driver.apply(f"w{number}", SMALL)
        await driver.wait(seconds=30)
        for number in range(3):
            driver.cluster.machines.kill(f"n{number}")
        await driver.wait(minutes=5)
        moved = await _moved(driver)
        assert sorted(moved) == ["n0", "n1", "n2"]
        begins = sorted(min(times) for times in moved.values())
        least = EvictionPolicy().interval.total_seconds()
        assert all(after - before >= least - 1 for before, after in pairwise(begins))
        assert await driver.events("MassNodeLoss") == []


@virtual_time()
async def test_a_late_store_does_not_let_many_nodes_be_left_at_once(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause begins once the last release was carried out: what a slow store holds back of
    several nodes would leave them at the same moment."""
    nodes = [machine(f"n{number}") for number in range(20)]
    async with running_cluster(clock, *nodes) as driver:
        for number in range(60):
            await driver.apply(f"w{number}", SMALL)
        await driver.wait(seconds=30)
        answers = _hold_moves(driver, monkeypatch)
        for number in range(5):
            driver.cluster.machines.kill(f"n{number}")
        await driver.wait(minutes=4)
        assert await _moved(driver) == {}
        answers.set()
        await driver.wait(minutes=2)
        moved = await _moved(driver)
        assert sorted(moved) == ["n0", "n1", "n2", "n3", "n4"]
        begins = sorted(min(times) for times in moved.values())
        least = EvictionPolicy().interval.total_seconds()
        assert all(after - before >= least - 1 for before, after in pairwise(begins))


def _hold_moves(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """From now on no assignment is committed before this event."""
    store = driver.cluster.api().ports.store
    commit, answers = store.commit, asyncio.Event()

    async def late(written: Commit) -> Committed | Conflict:
        if any(write.key.kind is Kind.ASSIGNMENT for write in written.writes):
            await answers.wait()
        return await commit(written)

    monkeypatch.setattr(store, "commit", late)
    return answers


@virtual_time()
async def test_a_mass_loss_stops_what_was_moving_already(clock: VirtualClock) -> None:
    """A node that was given up before the mass loss is left alone as well, until that is over."""
    nodes = [machine(f"n{number}") for number in range(10)]
    async with running_cluster(clock, *nodes) as driver:
        for number in range(10):
            await driver.apply(f"w{number}", SMALL)
        await driver.wait(seconds=30)
        monitor = driver.cluster.api().monitor
        driver.cluster.machines.kill("n0")
        await driver.clock.sleep(timedelta(minutes=4))
        assert monitor.may_move("n0")
        for number in range(1, 9):
            driver.cluster.machines.kill(f"n{number}")
        await driver.wait(minutes=1)
        assert not monitor.may_move("n0")
        for number in range(1, 9):
            driver.cluster.machines.revive(f"n{number}")
        await driver.wait(minutes=1)
        assert monitor.may_move("n0")

"""Drains and NoExecute taints: what leaves, in which order, and what stays and says so."""

from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.requests import (
    DrainNode,
    NodeIntentChange,
    NodeLabelChange,
    NodeTaintChange,
)
from persys_core.model.errors import NotFoundError, RefusedError
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ManagedVolume, WorkloadSpec
from persys_core.model.states import DesiredState, NodeStatus, TaintEffect, WorkloadType
from persys_core.ports.cluster_store import Kind
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.agent_settings import Latency
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

LOCAL = {"persys.scheduling.persistence_class": "node-local"}
EXCLUSIVE = ManagedVolume("v", "ceph-rbd", 1, "ReadWriteOnce", mount_path="/v")
BOTH_DRIVERS = frozenset({"local", "ceph-rbd"})
SYSTEM = {"persys.scheduling.node_system": "true"}


def _drain(node_id: str = "n1", seconds: float | None = None, *, force: bool = False) -> DrainNode:
    deadline = None if seconds is None else timedelta(seconds=seconds)
    return DrainNode(NodeIntentChange(node_id, "new kernel", "ann"), deadline, force)


def _running(driver: Driver) -> list[str]:
    """What really runs, copy by copy."""
    now = driver.clock.now()
    return sorted(name for model in driver.cluster.machines for name in model.running(now))


async def _running_on(driver: Driver, node_id: str, **specs: object) -> None:
    """Apply workloads while only ``node_id`` takes any, and wait until they run."""
    for workload_id, spec in specs.items():
        await driver.apply(workload_id, spec)  # type: ignore[arg-type]
    await driver.wait(seconds=20)
    for workload_id in specs:
        assert await driver.node_of(workload_id) == node_id


@virtual_time()
async def test_drain_starts_replacements_first(clock: VirtualClock) -> None:
    """Every stateless workload has a healthy copy at every second of a drain; afterwards each runs
    once, elsewhere, and the node owes nothing."""
    slow = evolve(machine("n2"), start=Latency.of(5))
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", a=container(), b=container())
        driver.cluster.add_machine(slow)
        await driver.wait(seconds=5)
        view = await driver.cluster.api().nodes.drain(_drain())
        assert (view.status, view.node.intent.changed_by) == (NodeStatus.DRAINING, "ann")
        for _ in range(60):
            await driver.wait(seconds=1)
            assert set(_running(driver)) == {"a", "b"}
        assert _running(driver) == ["a", "b"]
        assert await driver.node_of("a") == await driver.node_of("b") == "n2"
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)
        told = [event.type.value for event in await driver.events() if event.node_id == "n1"]
        assert "NodeDraining" in told
        assert told[-1] == "NodeDrained"


@virtual_time()
async def test_a_copy_that_does_not_run_is_not_kept_for_its_replacement(
    clock: VirtualClock,
) -> None:
    """A workload whose image is missing leaves no copy behind that waits for a healthy one."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container("missing:1"))
        await driver.wait(seconds=20)
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(seconds=30)
        assert await driver.node_of("w") == "n2"
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)


@virtual_time()
async def test_an_old_copy_goes_once_a_replacement_that_waits_to_be_updated_runs(
    clock: VirtualClock,
) -> None:
    """The update came while the replacement was being made, so that it first ran after it began to
    wait for room (simulator, seed 30156). Until then the old copy stays."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", w=container())
        driver.cluster.add_machine(evolve(machine("n2"), create=Latency.of(60)))
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(seconds=1)
        await driver.apply("w", container(cpu=9000))
        await driver.wait(seconds=50)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Pending", "n2")
        assert driver.cluster.machines.model("n1").running(clock.now())
        await driver.wait(seconds=40)
        assert _running(driver) == ["w"]
        assert driver.cluster.machines.model("n2").running(clock.now())
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)


@virtual_time()
async def test_an_old_copy_goes_although_its_replacement_waits_to_be_updated(
    clock: VirtualClock,
) -> None:
    """The replacement was healthy before it was to grow, and runs on (simulator, seed 227)."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", w=container())
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(seconds=0.2)
        assert await driver.node_of("w") == "n2"
        driver.cluster.machines.kill_agent("n1")
        await driver.wait(seconds=30)
        await driver.apply("w", container(cpu=9000))
        await driver.wait(seconds=30)
        assert await driver.status("w") == "Pending"
        driver.cluster.machines.revive("n1")
        await driver.wait(minutes=1)
        assert _running(driver) == ["w"]
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)


@virtual_time()
async def test_an_old_copy_stays_where_its_replacement_never_ran(clock: VirtualClock) -> None:
    """An update that finds no room leaves the only copy that runs alone, wherever that is."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", w=container())
        driver.cluster.add_machine(evolve(machine("n2"), start=Latency.of(5)))
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(seconds=0.2)
        assert await driver.node_of("w") == "n2"
        driver.cluster.machines.network.cut("n2", to_node=True, from_node=False)
        await driver.apply("w", container(cpu=9000))
        for _ in range(60):
            await driver.wait(seconds=1)
            assert "w" in driver.cluster.machines.model("n1").running(clock.now())


@virtual_time()
async def test_drain_names_its_blockers_until_the_deadline(clock: VirtualClock) -> None:
    """D02: two move, one has no place: progress names it with its reason, the deadline is told,
    and it runs on; with force it is stopped, the system workload last."""
    async with running_cluster(clock, machine("n1", cpu=8000)) as driver:
        await _running_on(
            driver,
            "n1",
            w1=container(),
            w2=container(),
            w3=container(cpu=5000),
            system=container(cpu=100, metadata=SYSTEM),
        )
        driver.cluster.add_machine(machine("n2", cpu=4000))
        await driver.wait(seconds=5)
        nodes = driver.cluster.api().nodes
        await nodes.drain(_drain(seconds=60))
        await driver.wait(seconds=40)
        progress = await nodes.progress("n1")
        assert (progress.moved, progress.remaining) == (2, 2)
        assert [(each.workload_id, each.code) for each in progress.blocked] == [("w3", "cpu")]
        skipped = await driver.events("RescheduleSkipped", "w3")
        assert len(skipped) == 1
        assert "cpu (asked 5000" in skipped[0].reason
        await driver.wait(seconds=30)
        assert len(await driver.events("DrainDeadline")) == 1
        assert (await driver.status("w3"), await driver.node_of("w3")) == ("Running", "n1")
        assert await driver.node_of("system") == "n1"
        await nodes.drain(_drain(seconds=1, force=True))
        await driver.wait(minutes=1)
        assert await driver.status("w3") == "Pending"
        assert await driver.node_of("system") == "n2"
        deletes = [
            entry.workload_id
            for entry in driver.cluster.machines.model("n1").journal.entries
            if entry.what == "delete"
        ]
        assert deletes[-1] == "system"


@virtual_time()
async def test_what_a_deadline_stopped_is_counted_apart(clock: VirtualClock) -> None:
    """It has not moved; once a node takes it, it has."""
    async with running_cluster(clock, machine("n1", cpu=8000)) as driver:
        await _running_on(driver, "n1", a=container(), b=container(cpu=5000))
        driver.cluster.add_machine(machine("n2", cpu=4000))
        await driver.wait(seconds=5)
        nodes = driver.cluster.api().nodes
        await nodes.drain(_drain(seconds=30, force=True))
        await driver.wait(minutes=1)
        progress = await nodes.progress("n1")
        assert (progress.moved, progress.stopped, progress.remaining) == (1, 1, 0)
        driver.cluster.add_machine(machine("n3", cpu=8000))
        await driver.wait(seconds=30)
        progress = await nodes.progress("n1")
        assert (progress.moved, progress.stopped, progress.remaining) == (2, 0, 0)


@virtual_time()
async def test_a_second_drain_names_the_order_that_it_replaces(clock: VirtualClock) -> None:
    """The answer has the wish that no longer holds; a first drain replaces nothing."""
    async with running_cluster(clock, machine("n1")) as driver:
        nodes = driver.cluster.api().nodes
        assert (await nodes.drain(_drain(seconds=60, force=True))).replaced is None
        view = await nodes.drain(_drain())
        assert view.replaced is not None
        assert view.replaced.drain is not None
        assert view.replaced.drain.force
        assert view.node.intent.drain is not None
        assert view.node.intent.drain.deadline_at is None


@pytest.mark.parametrize("force", [True, False])
@virtual_time()
async def test_an_old_copy_goes_at_the_deadline_of_a_forced_drain(
    clock: VirtualClock, *, force: bool
) -> None:
    """Its replacement never gets healthy: with force the deadline ends it all the same, at once;
    without, it is kept for as long as it takes."""
    broken = FaultPlan(workloads={"w": Behaviour(create_error="read timed out")})
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", w=container())
        driver.cluster.add_machine(machine("n2"), broken)
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain(seconds=30, force=force))
        await driver.wait(seconds=29)
        assert _running(driver) == ["w"]
        await driver.wait(seconds=10)
        assert _running(driver) == ([] if force else ["w"])
        progress = await driver.cluster.api().nodes.progress("n1")
        assert progress.moving == (0 if force else 1)


@virtual_time()
async def test_drain_survives_beats_registrations_and_restarts(clock: VirtualClock) -> None:
    """D01: only undrain ends a drain; then the node takes work again."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.cluster.api().nodes.drain(_drain())
        request = driver.cluster.machines.model("n1").registration()
        await driver.cluster.api().admission.register_node(evolve(request, agent_version="2"))
        await driver.wait(minutes=1)
        await driver.cluster.crash(driver.cluster.replicas[0])
        await driver.cluster.start_replica()
        await driver.wait(minutes=1)
        answer = await driver.apply("w")
        assert answer.explanation is not None
        assert answer.explanation.reasons[0].code == "draining"
        with pytest.raises(RefusedError, match="undrain"):
            await driver.cluster.api().nodes.uncordon(NodeIntentChange("n1"))
        await driver.cluster.api().nodes.undrain(NodeIntentChange("n1", "done"))
        await driver.wait(seconds=10)
        assert await driver.node_of("w") == "n1"


COMPOSE_DATA = ComposeSpec("services:\n  a:\n    image: db\nvolumes:\n  data:\n")


@pytest.mark.parametrize(
    "spec",
    [container(metadata=LOCAL), WorkloadSpec(WorkloadType.COMPOSE, Resources(), COMPOSE_DATA)],
    ids=("said", "compose"),
)
@virtual_time()
async def test_local_data_stays_on_a_drained_node(clock: VirtualClock, spec: WorkloadSpec) -> None:
    """A pinned workload does not move; progress says so, and it runs on."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", w=spec)
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(minutes=2)
        progress = await driver.cluster.api().nodes.progress("n1")
        assert [each.code for each in progress.blocked] == ["local_data"]
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")


@virtual_time()
async def test_exclusive_volume_stops_first(clock: VirtualClock) -> None:
    """Two copies never write to one exclusive volume: the new one starts after the old is gone."""
    nodes = [evolve(machine(name), storage_drivers=BOTH_DRIVERS) for name in ("n1", "n2")]
    async with running_cluster(clock, nodes[0]) as driver:
        await _running_on(driver, "n1", w=container(volumes=(EXCLUSIVE,)))
        driver.cluster.add_machine(nodes[1])
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain())
        for _ in range(60):
            await driver.wait(seconds=0.5)
            copies = sum("w" in model.running(clock.now()) for model in driver.cluster.machines)
            assert copies <= 1
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")


@virtual_time()
async def test_no_execute_moves_what_does_not_tolerate(clock: VirtualClock) -> None:
    """NoExecute moves what runs; what tolerates it stays; the other effects move nothing."""
    tolerant = container(metadata={"persys.scheduling.tolerations": "gpu:NoExecute"})
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", a=container(), b=tolerant)
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=5)
        nodes = driver.cluster.api().nodes
        change = NodeIntentChange("n1")
        await nodes.taint(NodeTaintChange(change, "gpu", "yes", TaintEffect.NO_SCHEDULE))
        await driver.wait(seconds=30)
        assert await driver.node_of("a") == "n1"
        await nodes.taint(NodeTaintChange(change, "gpu", "yes", TaintEffect.NO_EXECUTE))
        await driver.wait(seconds=30)
        assert (await driver.node_of("a"), await driver.node_of("b")) == ("n2", "n1")
        view = await nodes.untaint(NodeTaintChange(change, "gpu"))
        assert view.node.intent.taints == ()


@virtual_time()
async def test_labels_of_operators_win_and_come_off(clock: VirtualClock) -> None:
    """An operator's label places what waits for it and survives a registration; an agent's label
    is not the operator's to delete."""
    spec = container(metadata={"persys.scheduling.node_selector.disk": "ssd"})
    settings = evolve(machine("n1"), labels={"disk": "hdd", "rack": "7"})
    async with running_cluster(clock, settings) as driver:
        await driver.apply("w", spec)
        nodes, change = driver.cluster.api().nodes, NodeIntentChange("n1")
        await nodes.label(NodeLabelChange(change, "disk", "ssd"))
        await driver.wait(seconds=5)
        assert await driver.node_of("w") == "n1"
        request = driver.cluster.machines.model("n1").registration()
        await driver.cluster.api().admission.register_node(evolve(request, agent_version="2"))
        view, _ = await driver.cluster.api().queries.get_node("n1")
        assert view.node.labels == {"disk": "ssd", "rack": "7"}
        view = await nodes.label(NodeLabelChange(change, "disk"))
        assert view.node.labels["disk"] == "hdd"
        with pytest.raises(RefusedError, match="set by its agent"):
            await nodes.label(NodeLabelChange(change, "rack"))
        with pytest.raises(NotFoundError):
            await nodes.label(NodeLabelChange(NodeIntentChange("n9"), "a", "b"))


@virtual_time()
async def test_undrain_cancels_what_has_not_moved(clock: VirtualClock) -> None:
    """A drain that is called off leaves what is still there alone."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", w=container())
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(seconds=20)
        await driver.cluster.api().nodes.undrain(NodeIntentChange("n1"))
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")
        assert driver.calls("delete") == 0


@virtual_time()
async def test_delete_of_a_moving_workload_ends_both_copies(clock: VirtualClock) -> None:
    """A delete in the middle of a move removes the new copy and the old one."""
    slow = evolve(machine("n2"), create=Latency.of(60))
    async with running_cluster(clock, machine("n1")) as driver:
        await _running_on(driver, "n1", w=container())
        driver.cluster.add_machine(slow)
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(seconds=5)
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(minutes=5)
        assert all(not model.running(clock.now()) for model in driver.cluster.machines)
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)
        assert not driver.cluster.api().view.all(Kind.WORKLOAD)


@pytest.mark.parametrize("volumes", [(), (EXCLUSIVE,)], ids=["start-first", "stop-first"])
@virtual_time()
async def test_what_is_just_starting_is_seen_through_first(
    clock: VirtualClock, volumes: tuple[ManagedVolume, ...]
) -> None:
    """A drain in the middle of a start moves it once it runs: it has started in one place when it
    starts in the other, and is without a copy no longer than any other."""
    nodes = [evolve(machine(name), storage_drivers=BOTH_DRIVERS) for name in ("n1", "n2")]
    async with running_cluster(clock, evolve(nodes[0], create=Latency.of(8))) as driver:
        await driver.apply("w", container(volumes=volumes))
        await driver.wait(seconds=2)
        driver.cluster.add_machine(nodes[1])
        await driver.wait(seconds=3)
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(seconds=2)
        assert await driver.node_of("w") == "n1"
        assert driver.calls("apply", node_id="n2") == 0
        await driver.wait(minutes=1)
        assert await driver.node_of("w") == "n2"
        assert _running(driver) == ["w"]
        starts = [
            model.settings.node_id
            for model in driver.cluster.machines
            for entry in model.journal.entries
            if entry.what == "started"
        ]
        assert starts == ["n1", "n2"]


@virtual_time()
async def test_what_does_not_come_to_run_holds_up_no_drain(clock: VirtualClock) -> None:
    """Its time to start is all that it is given."""
    stuck = FaultPlan(workloads={"w": Behaviour(slow=True)})
    async with running_cluster(clock, machine("n1"), plan=stuck) as driver:
        await driver.apply("w", container())
        await driver.wait(seconds=5)
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=5)
        await driver.cluster.api().nodes.drain(_drain())
        await driver.wait(seconds=60)
        assert await driver.node_of("w") == "n2"


@pytest.mark.parametrize("verb", ["delete", "stop"])
@virtual_time()
async def test_a_node_is_not_empty_before_what_ends_there_has_ended(
    clock: VirtualClock, verb: str
) -> None:
    """What is being deleted or stopped needs no other place, and runs all the same until it is
    gone; once it is, nothing is left to wait for."""
    slow = evolve(machine("n1"), delete=Latency.of(6), stop=Latency.of(6))
    async with running_cluster(clock, slow) as driver:
        await _running_on(driver, "n1", w=container())
        api = driver.cluster.api()
        if verb == "delete":
            await api.admission.delete_workload("w", force=False)
        else:
            await driver.desire("w", DesiredState.STOPPED)
        await api.nodes.drain(_drain())
        await driver.wait(seconds=4)
        assert _running(driver) == ["w"]
        progress = await api.nodes.progress("n1")
        assert (progress.remaining, progress.moving) == (0, 1)
        assert not await driver.events("NodeDrained")
        await driver.wait(seconds=20)
        assert _running(driver) == []
        progress = await api.nodes.progress("n1")
        assert (progress.remaining, progress.moving) == (0, 0)
        assert len(await driver.events("NodeDrained")) == 1

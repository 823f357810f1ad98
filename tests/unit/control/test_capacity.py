"""Nothing is oversubscribed, nothing leaks, and what waits is woken."""

import asyncio
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.answers import NodeView
from persys_core.control.ledger_audit import expected_allocations, ledger_differences
from persys_core.control.requests import NodeIntentChange
from persys_core.control.scheduler import Scheduler
from persys_core.model.node import Taint
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation, Assignment, Tombstone
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Commit, Expectation, Key, Kind, Put, Snapshot
from persys_core.ports.observer import Metric
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow


def _assigned(snapshot: Snapshot) -> list[Assignment]:
    return [
        stored.value
        for stored in snapshot.records.values()
        if isinstance(stored.value, Assignment) and not stored.value.released
    ]


async def _node(driver: Driver, node_id: str = "n1") -> NodeView:
    view, _ = await driver.cluster.api().queries.get_node(node_id)
    return view


async def _taint(driver: Driver, *taints: Taint) -> None:
    """An operator's change of n1's record, as a later release's RPC will make it."""
    scheduler: Scheduler = driver.cluster.api()
    stored = scheduler.view.node("n1")
    assert stored is not None
    intent = evolve(stored.value.intent, taints=taints)
    tx = Transaction().put(Key.node("n1"), evolve(stored.value, intent=intent), stored)
    await scheduler.committer.commit(tx)


@virtual_time()
async def test_ten_applies_at_once_through_two_schedulers(clock: VirtualClock) -> None:
    """P02: ten applies of 1 CPU at one moment, two schedulers, one 4-CPU node: at most 4 are
    assigned at every revision, 4 at the end, 6 pending with reason cpu."""
    async with running_cluster(clock, machine("n1", cpu=4000), replicas=2) as driver:
        most = 0

        def look(_: Commit, __: int) -> None:
            nonlocal most
            most = max(most, len(_assigned(driver.cluster.backend.snapshot())))

        driver.cluster.backend.on_commit(look)
        schedulers = [replica.scheduler for replica in driver.cluster.replicas]
        from tests.builders import wish

        answers = await asyncio.gather(
            *(
                schedulers[number % 2].admission.apply_workload(wish(f"w{number}"))
                for number in range(10)
            )
        )
        assert most == 4
        assert sum(bool(answer.node_id) for answer in answers) == 4
        await driver.wait(minutes=2)
        pending = [answer for answer in answers if not answer.node_id]
        assert {answer.explanation.reasons[0].code for answer in pending if answer.explanation} == {
            "cpu"
        }
        statuses = [await driver.status(f"w{number}") for number in range(10)]
        assert (statuses.count("Running"), statuses.count("Pending")) == (4, 6)
        assert most == 4


@virtual_time()
async def test_reserved_is_subtracted_once(clock: VirtualClock) -> None:
    """P01: 8000 less 1000 reserved takes 7000 and refuses 7001, and free falls by exactly what
    more is reserved."""
    settings = machine("n1", cpu=8000)
    async with running_cluster(clock, settings) as driver:
        api = driver.cluster.api()
        request = driver.cluster.machines.model("n1").registration()
        await api.admission.register_node(
            evolve(request, reserved=Resources.of(cpu_millicores=1000))
        )
        refused = await driver.apply("big", container(cpu=7001))
        assert refused.explanation is not None
        tally = refused.explanation.reasons[0]
        assert (tally.code, tally.asked, tally.free_max, tally.unit) == (
            "cpu",
            7001,
            7000,
            "millicores",
        )
        assert (await _node(driver)).free.cpu_millicores == 7000
        await api.admission.register_node(
            evolve(request, reserved=Resources.of(cpu_millicores=2000))
        )
        assert (await _node(driver)).free.cpu_millicores == 6000
        await api.admission.register_node(
            evolve(request, reserved=Resources.of(cpu_millicores=1000))
        )
        assert (await driver.apply("fits", container(cpu=7000))).node_id == "n1"


@virtual_time()
async def test_leaked_charge_is_repaired(clock: VirtualClock) -> None:
    """P03: an allocation that no assignment stands for is repaired at the next audit, counted,
    and the room is used without a restart."""
    async with running_cluster(clock, machine("n1", cpu=4000)) as driver:
        backend = driver.cluster.backend
        leaked = Allocation("n1", Resources.of(cpu_millicores=4000), 4)
        backend.apply(
            Commit(
                (Expectation(Key.allocation("n1"), revision=0),),
                (Put(Key.allocation("n1"), leaked),),
                "leak",
            )
        )
        await driver.wait(seconds=1)
        assert (await driver.apply("w", container(cpu=4000))).node_id == ""
        await driver.wait(minutes=2)
        assert await driver.status("w") == "Running"
        assert driver.cluster.replicas[0].observer.count(Metric.LEDGER_REPAIRS) == 1


@virtual_time()
async def test_finished_work_frees_its_share(clock: VirtualClock) -> None:
    """P03: a Completed and a Failed workload charge nothing."""
    async with running_cluster(clock, machine("n1", cpu=4000)) as driver:
        await driver.apply("job", container("exit0", cpu=2000))
        await driver.apply("broken", container("missing", cpu=2000))
        await driver.wait(minutes=10)
        assert [await driver.status(each) for each in ("job", "broken")] == ["Completed", "Failed"]
        assert (await _node(driver)).allocated == Resources()
        assert (await driver.apply("next", container(cpu=4000))).node_id == "n1"


@virtual_time()
async def test_freed_capacity_wakes_pending(clock: VirtualClock) -> None:
    """P04: a deletion makes room, and what waits is placed within a reconcile interval."""
    async with running_cluster(clock, machine("n1", cpu=4000)) as driver:
        await driver.apply("a", container(cpu=3000))
        await driver.apply("b", container(cpu=2000))
        await driver.wait(seconds=20)
        assert await driver.status("b") == "Pending"
        await driver.cluster.api().admission.delete_workload("a", force=False)
        await driver.wait(seconds=10)
        assert await driver.node_of("b") == "n1"


@virtual_time()
async def test_new_node_wakes_pending(clock: VirtualClock) -> None:
    """P04: a node that joins takes what waits."""
    async with running_cluster(clock, machine("n1", cpu=1000)) as driver:
        await driver.apply("b", container(cpu=2000))
        driver.cluster.add_machine(machine("n2", cpu=4000))
        await driver.wait(seconds=10)
        assert await driver.node_of("b") == "n2"


@virtual_time()
async def test_removed_taint_wakes_pending(clock: VirtualClock) -> None:
    """P04: an operator's change of a node alone is enough."""
    async with running_cluster(clock, machine("n1")) as driver:
        await _taint(driver, Taint("dedicated", "db"))
        answer = await driver.apply("b", container())
        assert answer.explanation is not None
        assert answer.explanation.reasons[0].code == "taint"
        await _taint(driver)
        await driver.wait(seconds=5)
        assert await driver.node_of("b") == "n1"


@virtual_time()
async def test_uncordon_wakes_pending(clock: VirtualClock) -> None:
    """P04: a cordoned node takes nothing; uncordoned it takes what waits."""
    async with running_cluster(clock, machine("n1")) as driver:
        nodes = driver.cluster.api().nodes
        await nodes.cordon(NodeIntentChange("n1", "maintenance"))
        await driver.apply("b")
        await driver.wait(minutes=2)
        assert await driver.status("b") == "Pending"
        await nodes.uncordon(NodeIntentChange("n1"))
        await driver.wait(seconds=5)
        assert await driver.node_of("b") == "n1"


@virtual_time()
async def test_change_of_the_workload_itself_wakes_it(clock: VirtualClock) -> None:
    """P04: an update that only drops a selector places a pending workload."""
    async with running_cluster(clock, machine("n1")) as driver:
        selector = {"persys.scheduling.node_selector.disk": "ssd"}
        await driver.apply("b", container(metadata=selector))
        answer = await driver.apply("b", container())
        assert answer.node_id == "n1"


@virtual_time()
async def test_resize_that_fits_and_one_that_does_not(clock: VirtualClock) -> None:
    """A resize that fits is charged with its commit; one that does not leaves the old revision
    running, says resize:cpu, and is sent as soon as there is room."""
    async with running_cluster(clock, machine("n1", cpu=4000)) as driver:
        await driver.apply("a", container(cpu=1000))
        await driver.apply("b", container(cpu=2000))
        await driver.wait(seconds=20)
        await driver.apply("a", container(cpu=2000))
        await driver.wait(seconds=20)
        assert await driver.status("a") == "Running"
        assert (await _node(driver)).allocated.cpu_millicores == 4000
        sent = driver.calls("apply", "a")
        await driver.apply("a", container(cpu=3000))
        await driver.wait(minutes=2)
        view = await driver.view("a")
        assert view.status.reason is not None
        assert (view.status.status, view.status.reason.code) == ("Pending", "resize:cpu")
        assert driver.calls("apply", "a") == sent
        assert (await _node(driver)).allocated.cpu_millicores == 4000
        await driver.cluster.api().admission.delete_workload("b", force=False)
        await driver.wait(seconds=30)
        assert await driver.status("a") == "Running"
        assert (await _node(driver)).allocated.cpu_millicores == 3000


@virtual_time()
async def test_smaller_revision_frees_its_share_once_it_runs(clock: VirtualClock) -> None:
    """A shrink keeps the larger share until the new revision is seen running."""
    async with running_cluster(clock, machine("n1", cpu=4000)) as driver:
        await driver.apply("a", container(cpu=3000))
        await driver.wait(seconds=20)
        await driver.apply("a", container(cpu=1000))
        assert (await _node(driver)).allocated.cpu_millicores == 3000
        await driver.wait(seconds=30)
        assert (await _node(driver)).allocated.cpu_millicores == 1000


@virtual_time()
async def test_stopped_keeps_its_share(clock: VirtualClock) -> None:
    """Stopped work can always be started again: its share stays charged."""
    from persys_core.model.states import DesiredState

    async with running_cluster(clock, machine("n1", cpu=4000)) as driver:
        await driver.apply("a", container(cpu=3000))
        await driver.wait(seconds=20)
        await driver.desire("a", DesiredState.STOPPED)
        await driver.wait(seconds=60)
        assert await driver.status("a") == "Stopped"
        assert (await _node(driver)).allocated.cpu_millicores == 3000


@virtual_time()
async def test_shrunk_node_is_shown_overcommitted_and_loses_nothing(clock: VirtualClock) -> None:
    """A node that comes back smaller keeps its work, takes nothing new, and says so."""
    async with running_cluster(clock, machine("n1", cpu=4000)) as driver:
        await driver.apply("a", container(cpu=3000))
        await driver.wait(seconds=20)
        request = driver.cluster.machines.model("n1").registration()
        smaller = Resources({**request.capacity.amounts, "cpu": 2000})
        await driver.cluster.api().admission.register_node(evolve(request, capacity=smaller))
        await driver.wait(minutes=1)
        assert (await _node(driver)).overcommitted
        assert await driver.status("a") == "Running"
        assert (await driver.apply("b", container(cpu=1))).node_id == ""


def test_expected_allocations_add_up() -> None:
    """The audit's sum: charged assignments and tombstones, and nothing that was released."""
    from tests.builders import START

    one = Resources.of(cpu_millicores=1)
    ten = Resources.of(cpu_millicores=10)
    sums = expected_allocations(
        [
            Assignment("a", "u", "n1", one, "", START),
            Assignment("b", "u", "n1", Resources(), "", START, released=True),
        ],
        [
            Tombstone("n1", "c", "u", "r", ten, START),
            Tombstone("n2", "d", "u", "r", one, START, shares=0),
        ],
    )
    assert sums == {
        "n1": Allocation("n1", Resources.of(cpu_millicores=11), 2),
        "n2": Allocation("n2", one, 0),
    }


@pytest.mark.slow
@virtual_time()
async def test_ledger_always_equals_its_parts(clock: VirtualClock) -> None:
    """Safety 5: after every commit of a busy hour the ledger equals what it stands for."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        view = driver.cluster.api().view
        for number in range(20):
            await driver.apply(f"w{number}", container(cpu=100 * (number % 5)))
            await driver.wait(seconds=3)
            if number % 3 == 0:
                await driver.cluster.api().admission.delete_workload(f"w{number}", force=False)
            assert ledger_differences(view) == {}
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=10)
        assert ledger_differences(view) == {}
        assert view.all(Kind.TOMBSTONE)
        driver.cluster.machines.revive("n1")
        await driver.clock.sleep(timedelta(minutes=3))
        assert ledger_differences(view) == {}
        assert not view.all(Kind.TOMBSTONE)

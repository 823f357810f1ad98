"""Out of recovery: what agents run becomes records again, or the store is taken as it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.answers import ImportAnswer
from persys_core.control.config import SchedulerConfig
from persys_core.control.requests import (
    AcknowledgeEmpty,
    DrainNode,
    Heartbeat,
    ImportFromAgents,
    NodeIntentChange,
)
from persys_core.memory.cluster_memory import MemoryClusterMemory
from persys_core.memory.cluster_store import MemoryClusterBackend
from persys_core.model.cluster import MarkerState
from persys_core.model.drift import OrphanPolicy
from persys_core.model.errors import FrozenError, NotFoundError, RefusedError
from persys_core.model.states import DesiredState, OperatingMode
from persys_core.nodes.liveness import LivenessPolicy
from persys_core.ports.agents import ApplyRequest
from persys_core.ports.cluster_store import Key, Kind
from persys_core.ports.observer import Metric
from persys_core.recovery.plan import Decision
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import SimulatedCluster
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster, wish

pytestmark = pytest.mark.slow

WORKLOADS = tuple(f"w{number}" for number in range(5))
EMPTY = MemoryClusterBackend().snapshot()


@asynccontextmanager
async def working_cluster(
    clock: VirtualClock, orphans: OrphanPolicy = OrphanPolicy.REPORT
) -> AsyncIterator[Driver]:
    """Three nodes that run five workloads; whatever is done to its store, no bug may show."""
    cluster = SimulatedCluster(clock, config=SchedulerConfig(orphan_policy=orphans))
    await cluster.start_replica()
    for number in range(3):
        cluster.add_machine(machine(f"n{number}"))
    driver = Driver(cluster, clock)
    await driver.wait(seconds=5)
    for workload_id in WORKLOADS:
        await driver.apply(workload_id)
    await driver.wait(seconds=60)
    try:
        yield driver
    finally:
        await cluster.stop()
    assert sum(each.observer.count(Metric.BUGS) for each in cluster.replicas) == 0


async def restart(driver: Driver, snapshot: object = EMPTY, wait: float = 60) -> None:
    """The scheduler is down while its store is replaced."""
    await driver.cluster.stop_replica(driver.cluster.replicas[-1])
    driver.cluster.backend.restore(snapshot)  # type: ignore[arg-type]
    await driver.cluster.start_replica()
    await driver.wait(seconds=wait)


def mode(driver: Driver) -> OperatingMode:
    return driver.cluster.api().mode.mode


async def imported(driver: Driver, *nodes: str, dry_run: bool = False) -> ImportAnswer:
    order = ImportFromAgents(nodes, dry_run, "the disk was replaced")
    return await driver.cluster.api().recovery.import_from_agents(order)


async def acknowledged(driver: Driver) -> OperatingMode:
    order = AcknowledgeEmpty("a test cluster")
    return await driver.cluster.api().recovery.acknowledge_empty(order)


def calls(driver: Driver) -> tuple[int, int]:
    """Applies (a stop is one too) and deletes that reached agents."""
    return driver.calls("apply"), driver.calls("delete")


def running(driver: Driver) -> list[str]:
    now = driver.clock.now()
    return sorted(each for model in driver.cluster.machines for each in model.running(now))


@virtual_time()
async def test_a_wiped_store_is_imported_from_the_agents(clock: VirtualClock) -> None:
    """E04: five workloads under three nodes and an empty store: no call that changes anything,
    mutations refused with the reason, and an import that restores five records."""
    async with working_cluster(clock) as driver:
        before = calls(driver)
        places = {each: await driver.node_of(each) for each in WORKLOADS}
        await restart(driver)
        with pytest.raises(FrozenError, match="import it from the agents"):
            await driver.apply("new")
        revision = driver.cluster.backend.revision
        plan = await imported(driver, dry_run=True)
        assert driver.cluster.backend.revision == revision
        assert mode(driver) is OperatingMode.RECOVERY
        answer = await imported(driver)
        assert [(item.workload_id, item.decision) for item in answer.items] == [
            (item.workload_id, item.decision) for item in plan.items
        ]
        assert [item.workload_id for item in answer.items] == list(WORKLOADS)
        assert {item.decision for item in answer.items} == {Decision.IMPORT}
        assert (answer.listed, dict(answer.silent)) == (("n0", "n1", "n2"), {})
        assert answer.mode is mode(driver) is OperatingMode.NORMAL
        await driver.wait(minutes=5)
        assert {each: await driver.node_of(each) for each in WORKLOADS} == places
        assert [await driver.status(each) for each in WORKLOADS] == ["Running"] * 5
        explanation = await driver.cluster.api().queries.explain("w0")
        assert explanation.summary == f"imported from {places['w0']}; apply its spec to complete it"
        assert calls(driver) == before
        [event] = await driver.events("WorkloadsImported")
        assert event.reason == "the disk was replaced"
        assert event.details["import"] == "5"


@virtual_time()
async def test_the_same_spec_completes_an_import_without_a_restart(clock: VirtualClock) -> None:
    """The spec is recognised by its revision: charged from then on, and nothing is sent."""
    async with working_cluster(clock) as driver:
        await restart(driver)
        await imported(driver)
        await driver.wait(seconds=60)
        before, node_id = calls(driver), await driver.node_of("w0")
        view, _ = await driver.cluster.api().queries.get_node(node_id)
        free = view.free.cpu_millicores
        answer = await driver.apply("w0")
        assert answer.node_id == node_id
        await driver.wait(minutes=3)
        assert calls(driver) == before
        assert (await driver.view("w0")).workload.imported is None
        view, _ = await driver.cluster.api().queries.get_node(node_id)
        assert free - view.free.cpu_millicores == container().resources.cpu_millicores
        assert await driver.status("w0") == "Running"
        assert (await driver.apply("w0")).outcome == "Unchanged"


@virtual_time()
async def test_another_spec_is_an_update_like_any_other(clock: VirtualClock) -> None:
    """The user's new revision is sent to the node that runs the old one, and to no other."""
    async with working_cluster(clock) as driver:
        await restart(driver)
        await imported(driver)
        await driver.wait(seconds=60)
        node_id, before = await driver.node_of("w0"), driver.calls("apply", "w0")
        await driver.apply("w0", container("nginx:2"))
        await driver.wait(seconds=60)
        assert await driver.node_of("w0") == node_id
        assert driver.calls("apply", "w0", node_id) == before + 1
        assert await driver.status("w0") == "Running"


@pytest.mark.slow
@virtual_time()
async def test_what_was_imported_is_only_followed(clock: VirtualClock) -> None:
    """It is not restarted where it ends, not started where its node is lost, and not moved by a
    drain; the records say so."""
    async with working_cluster(clock) as driver:
        await restart(driver)
        await imported(driver)
        await driver.wait(seconds=60)
        before = calls(driver)
        lost, drained = await driver.node_of("w0"), await driver.node_of("w1")
        assert lost != drained
        driver.cluster.machines.kill(lost)
        api = driver.cluster.api()
        await api.nodes.drain(DrainNode(NodeIntentChange(drained)))
        await driver.wait(minutes=10)
        assert calls(driver) == before
        assert await driver.node_of("w0") == lost
        progress = await api.nodes.progress(drained)
        assert "w1" in {each.workload_id for each in progress.blocked}
        assert {each.code for each in progress.blocked} == {"imported"}


@virtual_time()
async def test_what_needs_a_spec_is_refused_with_advice(clock: VirtualClock) -> None:
    """Stopping and retrying an imported workload need its spec; deleting it does not."""
    async with working_cluster(clock) as driver:
        await restart(driver)
        await imported(driver)
        await driver.wait(seconds=60)
        with pytest.raises(RefusedError, match="apply it"):
            await driver.desire("w0", DesiredState.STOPPED)
        with pytest.raises(RefusedError, match="apply it"):
            await driver.cluster.api().admission.retry_workload("w0")
        await driver.cluster.api().admission.delete_workload("w0", force=False)
        await driver.wait(seconds=60)
        assert "w0" not in running(driver)
        with pytest.raises(NotFoundError):
            await driver.view("w0")


@virtual_time()
async def test_a_silent_node_keeps_recovery_going(clock: VirtualClock) -> None:
    """A node that gives no list is named and never taken for empty: what the others run is
    recorded, and nothing begins until it is there too."""
    async with working_cluster(clock) as driver:
        await restart(driver)
        before = calls(driver)
        driver.cluster.machines.network.cut("n1", from_node=False)
        answer = await imported(driver)
        assert set(answer.silent) == {"n1"}
        assert answer.mode is OperatingMode.RECOVERY
        await driver.wait(minutes=2)
        assert mode(driver) is OperatingMode.RECOVERY
        driver.cluster.machines.network.cut("n1", to_node=False, from_node=False)
        again = await imported(driver)
        kept = {item.workload_id for item in again.items if item.decision is Decision.SKIP}
        assert kept == {item.workload_id for item in answer.items}
        assert mode(driver) is OperatingMode.NORMAL
        await driver.wait(minutes=2)
        assert [await driver.status(each) for each in WORKLOADS] == ["Running"] * 5
        assert calls(driver) == before


@virtual_time()
async def test_a_node_that_was_known_before_is_waited_for(clock: VirtualClock) -> None:
    """What is known beside the store names the members: one that has not presented itself yet is
    not forgotten, and one that is gone for good is given up by an acknowledgement."""
    async with working_cluster(clock) as driver:
        driver.cluster.machines.kill("n1")
        await restart(driver)
        answer = await imported(driver)
        assert answer.listed == ("n0", "n2")
        assert dict(answer.silent) == {"n1": "it has not presented itself yet"}
        assert answer.mode is OperatingMode.RECOVERY
        assert await acknowledged(driver) is OperatingMode.NORMAL
        await driver.wait(minutes=2)
        kept = {item.workload_id for item in answer.items}
        assert {await driver.status(each) for each in kept} == {"Running"}


@virtual_time()
async def test_a_half_done_import_survives_a_restart(clock: VirtualClock) -> None:
    """Until the import is whole the store has no marker, so that a restart is in recovery too."""
    async with working_cluster(clock) as driver:
        await restart(driver)
        await imported(driver, "n0")
        assert driver.cluster.backend.snapshot().records.get(Key.marker()) is None
        await restart(driver, driver.cluster.backend.snapshot())
        assert mode(driver) is OperatingMode.RECOVERY
        await imported(driver)
        assert mode(driver) is OperatingMode.NORMAL
        await restart(driver, driver.cluster.backend.snapshot())
        assert mode(driver) is OperatingMode.NORMAL
        assert [await driver.status(each) for each in WORKLOADS] == ["Running"] * 5


@pytest.mark.slow
@virtual_time()
async def test_records_that_are_still_remembered_come_back_whole(clock: VirtualClock) -> None:
    """A store that is emptied under a running replica: its view has the specs, charges and uids,
    and the import writes them back."""
    async with working_cluster(clock) as driver:
        before = calls(driver)
        known = {each: await driver.view(each) for each in WORKLOADS}
        driver.cluster.backend.restore(EMPTY)
        await driver.wait(minutes=2)
        assert mode(driver) is OperatingMode.RECOVERY
        await imported(driver)
        await driver.wait(minutes=3)
        assert mode(driver) is OperatingMode.NORMAL
        for workload_id, view in known.items():
            restored = await driver.view(workload_id)
            assert restored.workload == view.workload
            assert restored.assignment is not None
            assert view.assignment is not None
            assert restored.assignment.charged == view.assignment.charged
            assert restored.status.status.value == "Running"
        assert calls(driver) == before


@pytest.mark.slow
@virtual_time()
async def test_a_store_that_went_back_is_imported(clock: VirtualClock) -> None:
    """E03: the older records are kept, what is newer is added, and nothing that runs is touched:
    not the workload that has a newer revision either."""
    async with working_cluster(clock) as driver:
        older = driver.cluster.backend.snapshot()
        await driver.apply("w0", container("nginx:2"))
        await driver.apply("w9")
        await driver.wait(seconds=60)
        before = calls(driver)
        await restart(driver, older)
        [event] = await driver.events("StoreRewound")
        assert int(event.details["to"]) == older.revision < int(event.details["from"])
        answer = await imported(driver)
        decisions = {item.workload_id: item.decision for item in answer.items}
        assert decisions == dict.fromkeys(("w1", "w2", "w3", "w4"), Decision.SKIP) | dict.fromkeys(
            ("w0", "w9"), Decision.IMPORT
        )
        await driver.wait(minutes=5)
        assert calls(driver) == before
        assert [await driver.status(each) for each in ("w0", "w1", "w9")] == ["Running"] * 3
        await driver.apply("w0", container("nginx:2"))
        await driver.wait(minutes=2)
        assert calls(driver) == before
        assert (await driver.view("w0")).workload.imported is None


@pytest.mark.slow
@pytest.mark.parametrize("orphans", [OrphanPolicy.REPORT, OrphanPolicy.DELETE])
@virtual_time()
async def test_an_acknowledged_empty_store_deletes_nothing(
    clock: VirtualClock, orphans: OrphanPolicy
) -> None:
    """What agents run is older than the new records: orphans that are reported, whatever the
    policy, and that can be imported later on."""
    async with working_cluster(clock, orphans) as driver:
        before = calls(driver)
        await restart(driver)
        assert await acknowledged(driver) is mode(driver) is OperatingMode.NORMAL
        await driver.wait(minutes=10)
        assert mode(driver) is OperatingMode.NORMAL
        assert calls(driver) == before
        assert running(driver) == list(WORKLOADS)
        drifts, _ = await driver.cluster.api().queries.list_drifts()
        assert {each.workload_id for each in drifts} == set(WORKLOADS)
        [event] = await driver.events("StoreAcknowledged")
        assert event.reason == "a test cluster"
        assert "marker is missing" in event.details["cause"]
        answer = await imported(driver)
        assert {item.decision for item in answer.items} == {Decision.IMPORT}
        await driver.wait(minutes=3)
        assert [await driver.status(each) for each in WORKLOADS] == ["Running"] * 5
        assert calls(driver) == before
        drifts, _ = await driver.cluster.api().queries.list_drifts()
        assert drifts == []


@pytest.mark.slow
@virtual_time()
async def test_an_agents_clock_may_be_ahead(clock: VirtualClock) -> None:
    """What seems a little newer than the new records is taken for older: it is not deleted and can
    be imported; what is clearly newer is an orphan like any other."""
    async with working_cluster(clock, OrphanPolicy.DELETE) as driver:
        await restart(driver)
        await acknowledged(driver)
        for workload_id, seconds in (("ahead", 30.0), ("newer", 60.0)):
            await driver.wait(seconds=seconds)
            request = ApplyRequest(workload_id, "r", DesiredState.RUNNING, container(), 0)
            driver.cluster.machines.model("n0").apply(request, clock.now())
        await driver.wait(minutes=5)
        assert "ahead" in running(driver)
        assert "newer" not in running(driver)
        decisions = {item.workload_id: item.decision for item in (await imported(driver)).items}
        assert decisions["ahead"] is Decision.IMPORT


@pytest.mark.slow
@virtual_time()
async def test_a_store_that_went_back_can_be_acknowledged(clock: VirtualClock) -> None:
    """The store as it is is accepted: its records hold, and what it does not know is older than
    its new marker, so that no policy deletes it."""
    async with working_cluster(clock, OrphanPolicy.DELETE) as driver:
        older = driver.cluster.backend.snapshot()
        await driver.apply("w9")
        await driver.wait(seconds=60)
        before = calls(driver)
        await restart(driver, older)
        created = older.records[Key.marker()].create_revision
        assert await acknowledged(driver) is OperatingMode.NORMAL
        marker = driver.cluster.backend.snapshot().records[Key.marker()]
        assert marker.create_revision != created
        await driver.wait(minutes=10)
        assert calls(driver) == before
        assert "w9" in running(driver)
        await restart(driver, driver.cluster.backend.snapshot())
        assert mode(driver) is OperatingMode.NORMAL


@pytest.mark.slow
@pytest.mark.parametrize("is_running", [False, True])
@virtual_time()
async def test_a_backup_of_a_former_life_is_noticed(clock: VirtualClock, is_running: bool) -> None:
    """An empty store counts from 1 after an import, so that an older backup has the higher
    revision and the same cluster: the marker's life tells that it is older all the same."""
    async with working_cluster(clock) as driver:
        backup = driver.cluster.backend.snapshot()
        await restart(driver)
        await imported(driver)
        await driver.apply("w9")
        await driver.wait(minutes=2)
        former = backup.records[Key.marker()].value
        now = driver.cluster.backend.snapshot()
        life = now.records[Key.marker()].value
        assert now.revision < 10 * backup.revision
        backup = evolve(backup, revision=10 * backup.revision)
        before = calls(driver)
        if is_running:
            driver.cluster.backend.restore(backup)
            await driver.wait(minutes=2)
        else:
            await restart(driver, backup, wait=120)
        assert mode(driver) is OperatingMode.RECOVERY
        reason = driver.cluster.api().mode.reason
        bases = [getattr(each, "epoch_base", None) for each in (life, former)]
        assert f"epoch base {bases[0]} was seen, now it is {bases[1]}" in reason
        [event] = await driver.events("StoreRewound")
        assert [event.details["from_epoch_base"], event.details["to_epoch_base"]] == [
            str(base) for base in bases
        ]
        assert calls(driver) == before
        await imported(driver)
        assert mode(driver) is OperatingMode.NORMAL
        await driver.wait(minutes=5)
        assert mode(driver) is OperatingMode.NORMAL
        assert calls(driver) == before
        assert await driver.status("w9") == "Running"


@virtual_time()
async def test_agents_in_their_backoff_are_not_missed(clock: VirtualClock) -> None:
    """Agents that were refused come back within 45 s: until a lease after that nobody is lost,
    also where a lease is short, and whichever replica led the cluster out of recovery."""
    quick = LivenessPolicy(timedelta(seconds=2))
    config = SchedulerConfig(liveness=quick)
    async with running_cluster(clock, *map(machine, ("n0", "n1", "n2")), config=config) as driver:
        older = driver.cluster.backend.snapshot()
        await driver.apply("w0")
        await driver.wait(seconds=30)
        await restart(driver, older, wait=5)
        for number in range(3):
            driver.cluster.machines.pause(f"n{number}")
        assert await acknowledged(driver) is OperatingMode.NORMAL
        await driver.wait(seconds=46)
        for number in range(3):
            driver.cluster.machines.resume(f"n{number}")
        await driver.wait(minutes=2)
        assert await driver.events("NodeLost") == []
        assert await driver.events("MassNodeLoss") == []


@virtual_time()
async def test_a_refused_registration_is_a_sign_of_life(clock: VirtualClock) -> None:
    """An agent that is refused waits up to 45 s before it asks again: it is not missed meanwhile,
    and nothing is written for it."""
    async with working_cluster(clock) as driver:
        older = driver.cluster.backend.snapshot()
        await driver.apply("w9")
        await driver.wait(seconds=30)
        await restart(driver, older, wait=5)
        driver.cluster.machines.pause("n0")
        await driver.wait(minutes=2)
        assert not driver.cluster.liveness.is_alive("n0")
        revision = driver.cluster.backend.revision
        request = driver.cluster.machines.model("n0").registration()
        answer = await driver.cluster.api().admission.register_node(request)
        assert not answer.accepted
        await driver.wait(seconds=46)
        assert driver.cluster.liveness.is_alive("n0")
        assert driver.cluster.backend.revision <= revision + 1  # the leader's record


@virtual_time()
async def test_a_new_life_is_above_the_one_before(clock: VirtualClock) -> None:
    """A clock that was put back, by the scheduler's last start, makes no life look older."""
    async with working_cluster(clock) as driver:
        await driver.cluster.stop_replica(driver.cluster.replicas[-1])
        known = await driver.cluster.memory.load()
        assert known is not None
        ahead = 10 * int(clock.now().timestamp() * 1000)
        await driver.cluster.memory.save(evolve(known, epoch_base=ahead))
        await driver.cluster.start_replica()
        await driver.wait(seconds=30)
        assert mode(driver) is OperatingMode.RECOVERY
        assert await acknowledged(driver) is OperatingMode.NORMAL
        marker = driver.cluster.backend.snapshot().records[Key.marker()].value
        assert getattr(marker, "epoch_base", 0) > ahead + known.revision
        await driver.wait(minutes=2)
        assert mode(driver) is OperatingMode.NORMAL


@virtual_time()
async def test_nobody_is_missed_once_the_data_is_back(clock: VirtualClock) -> None:
    """The end of a recovery that this replica did not lead gives the same time to come back."""
    async with working_cluster(clock) as driver:
        whole = driver.cluster.backend.snapshot()
        driver.cluster.backend.restore(EMPTY)
        await driver.wait(minutes=1)
        assert mode(driver) is OperatingMode.RECOVERY
        driver.cluster.machines.pause("n0")
        await driver.wait(minutes=2)
        assert not driver.cluster.liveness.is_alive("n0")
        driver.cluster.backend.restore(evolve(whole, revision=whole.revision + 1000))
        await driver.wait(seconds=20)
        assert mode(driver) is OperatingMode.NORMAL
        await driver.wait(seconds=60)
        assert driver.cluster.liveness.is_alive("n0")
        await driver.wait(seconds=60)
        assert not driver.cluster.liveness.is_alive("n0")


@virtual_time()
async def test_work_under_a_fresh_store_can_be_imported(clock: VirtualClock) -> None:
    """Everything beside the store was lost too: the new marker contradicts the agents, and the
    import makes it that of a cluster with work."""
    async with working_cluster(clock) as driver:
        before = calls(driver)
        driver.cluster.memory = MemoryClusterMemory()
        await restart(driver, wait=120)
        assert "none was ever placed" in driver.cluster.api().mode.reason
        await imported(driver)
        await driver.wait(minutes=3)
        assert mode(driver) is OperatingMode.NORMAL
        marker = driver.cluster.backend.snapshot().records[Key.marker()].value
        assert getattr(marker, "state", None) is MarkerState.ACTIVE
        assert [await driver.status(each) for each in WORKLOADS] == ["Running"] * 5
        assert calls(driver) == before


@virtual_time()
async def test_work_under_a_fresh_store_can_be_acknowledged(clock: VirtualClock) -> None:
    """The operator knows of it: the marker is fresh no more, so that nothing contradicts it."""
    async with working_cluster(clock) as driver:
        before = calls(driver)
        driver.cluster.memory = MemoryClusterMemory()
        await restart(driver, wait=120)
        assert await acknowledged(driver) is OperatingMode.NORMAL
        await driver.wait(minutes=5)
        assert mode(driver) is OperatingMode.NORMAL
        assert calls(driver) == before


@virtual_time()
async def test_another_clusters_store_can_be_taken(clock: VirtualClock) -> None:
    """The store of another cluster is what there is: accepted with its name, and remembered."""
    async with working_cluster(clock) as driver:
        before = calls(driver)
        other = SimulatedCluster(clock, seed=7)
        await other.start_replica()
        await other.stop()
        await restart(driver, other.backend.snapshot())
        assert "another cluster" in driver.cluster.api().mode.reason
        await imported(driver)
        assert mode(driver) is OperatingMode.NORMAL
        await restart(driver, driver.cluster.backend.snapshot())
        assert mode(driver) is OperatingMode.NORMAL
        assert [await driver.status(each) for each in WORKLOADS] == ["Running"] * 5
        assert calls(driver) == before


@virtual_time()
async def test_nothing_is_placed_before_a_node_was_listed_again(clock: VirtualClock) -> None:
    """The placement rule holds in the marker's new life: a node that does not list takes nothing,
    although it was listed in the one before."""
    async with working_cluster(clock) as driver:
        await restart(driver, driver.cluster.backend.snapshot())
        older = driver.cluster.backend.snapshot()
        await driver.apply("w9")
        await driver.wait(seconds=30)
        await restart(driver, older)
        for node_id in ("n0", "n1", "n2"):
            driver.cluster.machines.network.cut(node_id, from_node=False)
        await acknowledged(driver)
        answer = await driver.apply("big", container(cpu=100))
        assert answer.node_id == ""
        assert answer.explanation is not None
        assert {tally.code for tally in answer.explanation.reasons} == {"not_listed"}


@virtual_time()
async def test_orders_that_make_no_sense_are_refused(clock: VirtualClock) -> None:
    """Each refusal says what to do instead."""
    async with working_cluster(clock) as driver:
        with pytest.raises(RefusedError, match="nothing to acknowledge"):
            await acknowledged(driver)
        with pytest.raises(NotFoundError):
            await imported(driver, "nobody")
        for number in range(3):
            driver.cluster.machines.kill(f"n{number}")
        await restart(driver)
        with pytest.raises(RefusedError, match="no node is known"):
            await imported(driver)
        assert await acknowledged(driver) is OperatingMode.NORMAL


@virtual_time()
async def test_one_order_at_a_time(clock: VirtualClock) -> None:
    """A second import while one is under way is refused."""
    async with working_cluster(clock) as driver:
        await restart(driver)
        first = asyncio.ensure_future(imported(driver))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="under way"):
            await acknowledged(driver)
        assert (await first).mode is OperatingMode.NORMAL


@virtual_time()
async def test_an_agent_that_only_beats_is_asked_to_register(clock: VirtualClock) -> None:
    """A heartbeat does not tell where the agent listens: in recovery an unknown sender has to
    register, once; while degraded nobody has to."""
    async with working_cluster(clock) as driver:
        await restart(driver, wait=0)
        admission = driver.cluster.api().admission
        assert not (await admission.heartbeat(Heartbeat("n7"))).known
        request = evolve(driver.cluster.machines.model("n0").registration(), node_id="n7")
        answer = await admission.register_node(request)
        assert not answer.accepted
        assert (await admission.heartbeat(Heartbeat("n7"))).known


@virtual_time()
async def test_a_full_node_is_imported_and_gets_nothing_new(clock: VirtualClock) -> None:
    """Safety 1: work that runs is charged even above the capacity; the node loses nothing and
    takes nothing new."""
    async with working_cluster(clock) as driver:
        await driver.apply("large", container(cpu=3000))
        await driver.wait(seconds=60)
        await restart(driver)
        await imported(driver)
        await driver.wait(seconds=60)
        node_id = await driver.node_of("large")
        selector = {"persys.scheduling.exclude_nodes": ",".join({"n0", "n1", "n2"} - {node_id})}
        assert (await driver.apply("late", container(cpu=2000, metadata=selector))).node_id
        before = driver.calls("apply", "large")
        await driver.apply("large", container(cpu=3000))
        await driver.wait(minutes=2)
        view, _ = await driver.cluster.api().queries.get_node(node_id)
        assert view.overcommitted
        assert {"large", "late"} <= set(running(driver))
        assert driver.calls("apply", "large") == before
        assert (await driver.apply("more", container(metadata=selector))).node_id == ""


@pytest.mark.slow
@virtual_time()
async def test_large_nodes_are_imported_in_several_commits(clock: VirtualClock) -> None:
    """No commit holds more than a transaction may."""
    cluster = SimulatedCluster(clock)
    await cluster.start_replica()
    cluster.add_machine(machine("n1", cpu=64_000))
    driver = Driver(cluster, clock)
    await driver.wait(seconds=10)
    for number in range(45):
        await cluster.api().admission.apply_workload(wish(f"w{number}", container(cpu=100)))
    await driver.wait(minutes=2)
    await restart(driver)
    await imported(driver)
    assert len(cluster.api().view.all(Kind.WORKLOAD)) == 45
    allocation = cluster.api().view.allocation("n1")
    assert allocation is not None
    assert allocation.value.workload_count == 45
    await cluster.stop()

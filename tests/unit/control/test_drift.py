"""Drift at work: each type is found, told once, recorded while it stands, and put right."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.config import SchedulerConfig
from persys_core.control.requests import DrainNode, NodeIntentChange, RemoveNode
from persys_core.model.drift import DriftRecord, DriftType, OrphanPolicy
from persys_core.model.errors import NotFoundError
from persys_core.model.event import Event
from persys_core.model.ids import NodeId
from persys_core.model.states import DesiredState, NodeStatus, RestartPolicy
from persys_core.modes.machine import ModeEvent
from persys_core.ports.agents import ApplyRequest, DeleteRequest
from persys_core.ports.cluster_store import Commit, Committed, Key, Kind, Put
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.agent_settings import AgentSettings, existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

both_agents = pytest.mark.parametrize("agent", [machine, existing_agent])
REPORT, ADOPT, DELETE = OrphanPolicy.REPORT, OrphanPolicy.ADOPT, OrphanPolicy.DELETE


def _policy(policy: OrphanPolicy) -> SchedulerConfig:
    return SchedulerConfig(orphan_policy=policy)


def _records(driver: Driver) -> list[DriftRecord]:
    return list(driver.cluster.api().view.values(Kind.DRIFT, DriftRecord))


async def _told(driver: Driver, workload_id: str = "") -> list[Event]:
    return await driver.events("DriftDetected", workload_id)


def _sneak(
    driver: Driver,
    node_id: NodeId,
    workload_id: str,
    desired: DesiredState = DesiredState.RUNNING,
    revision: str = "r1",
) -> None:
    """Apply past the scheduler, as a person on the machine would."""
    request = ApplyRequest(workload_id, revision, desired, container("sneaked"), 0)
    driver.cluster.machines.model(node_id).apply(request, driver.clock.now())


def _remove(driver: Driver, node_id: NodeId, workload_id: str) -> None:
    """Delete past the scheduler."""
    driver.cluster.machines.model(node_id).delete(DeleteRequest(workload_id, 0), driver.clock.now())


def _runs(driver: Driver, node_id: NodeId) -> set[str]:
    return set(driver.cluster.machines.model(node_id).running(driver.clock.now()))


@asynccontextmanager
async def _one_running(
    clock: VirtualClock,
    agent: Callable[[NodeId], AgentSettings],
    config: SchedulerConfig | None = None,
    plan: FaultPlan | None = None,
) -> AsyncIterator[Driver]:
    """``w`` runs on ``n1``, and has done so for a while."""
    async with running_cluster(clock, agent("n1"), config=config, plan=plan) as driver:
        await driver.apply("w")
        await driver.wait(minutes=1)
        assert await driver.status("w") == "Running"
        yield driver


async def _is_right_again(driver: Driver, kind: str) -> None:
    """It was told once, nothing of it is left, and all is as wished."""
    await driver.wait(minutes=5)
    told = await _told(driver)
    assert [(event.reason, event.workload_id) for event in told] == [(kind, "w")]
    assert _records(driver) == []
    assert await driver.status("w") == "Running"
    assert _runs(driver, "n1") == {"w"}


@both_agents
@virtual_time()
async def test_a_stop_by_hand_is_told_and_undone(
    clock: VirtualClock, agent: Callable[[NodeId], AgentSettings]
) -> None:
    """state_mismatch: what was stopped on its machine is started again by the reconciler."""
    async with _one_running(clock, agent) as driver:
        revision = (await driver.view("w")).workload.revision_id
        _sneak(driver, "n1", "w", DesiredState.STOPPED, revision)
        await _is_right_again(driver, "state_mismatch")


@both_agents
@virtual_time()
async def test_another_revision_is_told_and_replaced(
    clock: VirtualClock, agent: Callable[[NodeId], AgentSettings]
) -> None:
    """revision_mismatch: the recorded revision is sent again."""
    async with _one_running(clock, agent) as driver:
        _sneak(driver, "n1", "w", revision="other")
        await _is_right_again(driver, "revision_mismatch")
        found = driver.cluster.machines.model("n1").running(clock.now())
        assert found == {"w": (await driver.view("w")).workload.revision_id}


@both_agents
@virtual_time()
async def test_a_removal_by_hand_is_told_and_undone(
    clock: VirtualClock, agent: Callable[[NodeId], AgentSettings]
) -> None:
    """missing_on_agent: it is started again, and no retry budget is spent (defect C17)."""
    async with _one_running(clock, agent) as driver:
        _remove(driver, "n1", "w")
        await _is_right_again(driver, "missing_on_agent")
        assert (await driver.view("w")).status.retry.attempts == 0


@both_agents
@virtual_time()
async def test_an_orphan_is_reported_until_it_is_gone(
    clock: VirtualClock, agent: Callable[[NodeId], AgentSettings]
) -> None:
    """orphan_on_agent: one event and one record, no call to the agent; the record goes with it."""
    async with _one_running(clock, agent) as driver:
        _sneak(driver, "n1", "ghost")
        await driver.wait(minutes=10)
        (event,) = await _told(driver)
        assert (event.reason, event.workload_id, event.node_id) == (
            "orphan_on_agent",
            "ghost",
            "n1",
        )
        assert event.details["action"] == "operator_investigation"
        (record,) = _records(driver)
        assert (record.workload_id, record.agent_status) == ("ghost", "Running")
        assert driver.calls("delete") == 0
        queries = driver.cluster.api().queries
        assert (await queries.list_drifts())[0] == [record]
        with pytest.raises(NotFoundError, match='node "n2" not found'):
            await queries.list_drifts(node_id="n2")
        assert (await queries.list_drifts(node_id="n1"))[0] == [record]
        _remove(driver, "n1", "ghost")
        await driver.wait(minutes=2)
        assert _records(driver) == []
        assert (await queries.list_drifts(node_id="n1"))[0] == []
        assert len(await _told(driver)) == 1


@pytest.mark.slow
@virtual_time()
async def test_a_drift_that_lasts_is_recorded(clock: VirtualClock) -> None:
    """While the agent cannot put it right, the record stands, and nothing more is told or
    written of it; it goes once that is done."""
    faults: dict[str, Behaviour] = {}
    async with _one_running(clock, machine, plan=FaultPlan(workloads=faults)) as driver:
        faults["w"] = Behaviour(create_error="read timed out")
        _remove(driver, "n1", "w")
        await driver.wait(seconds=45)
        (record,) = _records(driver)
        assert (record.drift_type, record.action) == ("missing_on_agent", "retry_and_reconcile")
        faults.clear()
        await driver.wait(minutes=10)
        await _is_right_again(driver, "missing_on_agent")


@virtual_time()
async def test_two_drifts_of_one_workload_are_both_found(clock: VirtualClock) -> None:
    """J13: a wrong state does not hide a wrong revision."""
    async with _one_running(clock, machine) as driver:
        _sneak(driver, "n1", "w", revision="other")
        await driver.wait(seconds=1)
        _sneak(driver, "n1", "w", DesiredState.STOPPED, "other")
        await driver.wait(minutes=5)
        assert _records(driver) == []
        assert _runs(driver, "n1") == {"w"}
        assert {str(event.reason) for event in await _told(driver)} >= {"revision_mismatch"}


@pytest.mark.slow
@both_agents
@pytest.mark.parametrize("seed", [5, 7])
@virtual_time()
async def test_no_false_alarms(
    clock: VirtualClock, agent: Callable[[NodeId], AgentSettings], seed: int
) -> None:
    """C17: an hour of deploys, updates, stops, deletes, crashes and lost nodes is no drift."""
    nodes = [evolve(agent(name), cpu_millicores=16_000) for name in ("n1", "n2", "n3")]
    rng = random.Random(seed)
    async with running_cluster(clock, *nodes) as driver:
        for minute in range(60):
            name = f"w{minute % 12}"
            policy = rng.choice([RestartPolicy.NO, RestartPolicy.ALWAYS])
            kind = rng.choice(["plain", "plain", "crash", "flaky", "exit0"])
            await driver.apply(name, container(f"{kind}-{minute}", cpu=500, restart=policy))
            if minute % 3 == 1:
                await driver.desire(f"w{minute % 12}", DesiredState.STOPPED)
            if minute % 5 == 4:
                old = f"w{(minute - 3) % 12}"
                await driver.cluster.api().admission.delete_workload(old, force=False)
            if minute % 7 == 3:
                await driver.cluster.api().nodes.drain(DrainNode(NodeIntentChange("n3")))
            if minute % 7 == 5:
                await driver.cluster.api().nodes.undrain(NodeIntentChange("n3"))
            if minute % 20 == 10:
                driver.cluster.machines.kill("n2")
            if minute % 20 == 15:
                driver.cluster.machines.revive("n2")
            await driver.wait(seconds=rng.uniform(20, 80))
        await driver.wait(minutes=5)
        assert await _told(driver) == []
        assert _records(driver) == []


@pytest.mark.slow
@virtual_time()
async def test_a_steady_cluster_costs_nothing(clock: VirtualClock) -> None:
    """No write, no event, and no listing beyond those of the reconcile loop."""
    async with _one_running(clock, existing_agent) as driver:
        _sneak(driver, "n1", "ghost")
        await driver.wait(minutes=2)
        revision = await driver.cluster.api().ports.store.probe()
        counts = driver.cluster.machines.model("n1").journal.counts
        before = counts["list"]
        await driver.wait(minutes=30)
        assert await driver.cluster.api().ports.store.probe() == revision
        assert counts["list"] - before <= 30 * 60 / 5 + 1
        assert len(await _told(driver)) == 1


@virtual_time()
async def test_an_agent_that_cannot_say_for_now_is_not_written_down_again_and_again(
    clock: VirtualClock,
) -> None:
    """What was removed below an agent that tells all in its beats is Stopped in listings and
    Unknown in beats: that is told once, however often the two alternate (seed 30196)."""
    passes = SchedulerConfig(drift_interval=timedelta(seconds=33))
    async with _one_running(clock, machine, passes) as driver:
        await driver.desire("w", DesiredState.STOPPED)
        await driver.wait(minutes=1)
        driver.cluster.machines.model("n1").remove_below("w", clock.now())
        await driver.cluster.api().nodes.remove(RemoveNode(NodeIntentChange("n1"), force=True))
        await driver.wait(minutes=5)
        assert [(each.workload_id, each.agent_status) for each in _records(driver)] == [
            ("w", "Stopped")
        ]
        revision = await driver.cluster.api().ports.store.probe()
        await driver.wait(hours=1)
        assert await driver.cluster.api().ports.store.probe() == revision
        assert len(await _told(driver)) <= 2


@virtual_time()
async def test_it_lists_where_nobody_else_does(clock: VirtualClock) -> None:
    """With a slow reconcile loop each node is listed at most once per drift interval."""
    slow = SchedulerConfig(reconcile_interval=timedelta(hours=1))
    async with _one_running(clock, existing_agent, slow) as driver:
        counts = driver.cluster.machines.model("n1").journal.counts
        before = counts["list"]
        _sneak(driver, "n1", "ghost")
        await driver.wait(minutes=10)
        assert 15 <= counts["list"] - before <= 21
        assert len(await _told(driver)) == 1


@both_agents
@virtual_time()
async def test_delete_takes_three_sightings(
    clock: VirtualClock, agent: Callable[[NodeId], AgentSettings]
) -> None:
    """Policy delete: an unknown workload goes by a tombstone after three listings in a row; its
    record goes with it, and the ledger is as before."""
    async with _one_running(clock, agent, _policy(DELETE)) as driver:
        view = driver.cluster.api().view
        before = view.allocation("n1")
        began = clock.now()
        _sneak(driver, "n1", "ghost")
        await driver.wait(minutes=3)
        model = driver.cluster.machines.model("n1")
        deletes = [each for each in model.journal.entries if each.what == "delete"]
        assert [each.workload_id for each in deletes] == ["ghost"]
        assert deletes[0].at - began >= timedelta(seconds=10)
        assert deletes[0].epoch > 0
        assert _runs(driver, "n1") == {"w"}
        assert (_records(driver), dict(view.all(Kind.TOMBSTONE))) == ([], {})
        after = view.allocation("n1")
        assert before is not None
        assert after is not None
        assert after.value == before.value
        assert (await _told(driver))[-1].details["action"] == "delete_orphan_on_agent"


@virtual_time()
async def test_two_sightings_are_not_enough(clock: VirtualClock) -> None:
    """However often the loop comes by, it takes three listings; until then it only waits."""
    eager = SchedulerConfig(orphan_policy=DELETE, drift_interval=timedelta(seconds=1))
    async with _one_running(clock, existing_agent, eager) as driver:
        _sneak(driver, "n1", "ghost")
        await driver.wait(minutes=1)
        assert driver.calls("delete", "ghost") == 1
        actions = [event.details["action"] for event in await _told(driver)]
        assert actions == ["await_more_sightings", "delete_orphan_on_agent"]


@virtual_time()
async def test_one_listing_without_it_begins_anew(clock: VirtualClock) -> None:
    """Two sightings are not three: what came and went is never deleted."""
    async with _one_running(clock, existing_agent, _policy(DELETE)) as driver:
        for number in range(6):
            _sneak(driver, "n1", f"ghost{number}")
            await driver.wait(seconds=9)
            _remove(driver, "n1", f"ghost{number}")
            await driver.wait(seconds=20)
        deletes = [
            each
            for each in driver.cluster.machines.model("n1").journal.entries
            if each.what == "delete" and each.epoch
        ]
        assert deletes == []


@pytest.mark.slow
@virtual_time()
async def test_what_is_older_than_the_marker_is_never_deleted(clock: VirtualClock) -> None:
    """A3: a workload that was there before this cluster's records began may have to be imported."""
    cluster = running_cluster(clock, config=_policy(DELETE))
    async with cluster as driver:
        driver.cluster.add_machine(existing_agent("n1"))
        await driver.apply("w")
        await driver.wait(minutes=1)
        _sneak(driver, "n1", "ghost")
        store = driver.cluster.api().ports.store
        marker = driver.cluster.api().view.marker()
        assert marker is not None
        younger = evolve(marker.value, created_at=clock.now() + timedelta(seconds=30))
        await _write(driver, Put(Key.marker(), younger))
        await driver.wait(minutes=10)
        assert await store.probe()
        assert _runs(driver, "n1") == {"w", "ghost"}
        (record,) = _records(driver)
        assert "older than this cluster" in record.last_error


async def _write(driver: Driver, *writes: Put) -> None:
    result = await driver.cluster.api().ports.store.commit(Commit((), writes, "by hand"))
    assert isinstance(result, Committed)


@pytest.mark.parametrize("event", [ModeEvent.OPERATION_EXHAUSTED, ModeEvent.MARKER_MISSING])
@virtual_time()
async def test_a_frozen_control_plane_does_nothing(clock: VirtualClock, event: ModeEvent) -> None:
    """C18, A3: in degraded and recovery mode nothing is told, recorded or deleted."""
    unprobed = evolve(_policy(DELETE), probe_interval=timedelta(hours=1))
    async with _one_running(clock, existing_agent, unprobed) as driver:
        modes = driver.cluster.api().modes
        _sneak(driver, "n1", "ghost")
        await driver.wait(seconds=17)
        look = driver.cluster.api().drift_notes.look("n1")
        assert look is not None
        assert look.findings
        modes.report(event, "for the test")
        await driver.wait(minutes=5)
        assert modes.is_frozen
        assert driver.calls("delete") == 0
        assert await _told(driver) == []
        assert _records(driver) == []


@virtual_time()
async def test_adopt_takes_what_is_known_and_fits(clock: VirtualClock) -> None:
    """Policy adopt: a pending workload whose present revision runs there is assigned there; what
    the store does not know is reported, since agents report no specs."""
    only = {"persys.scheduling.node_selector.zone": "none"}
    async with running_cluster(clock, existing_agent("n1"), config=_policy(ADOPT)) as driver:
        await driver.apply("w")
        await driver.wait(minutes=1)
        await driver.apply("lost", container(metadata=only))
        revision = (await driver.view("lost")).workload.revision_id
        _sneak(driver, "n1", "lost", revision=revision)
        _sneak(driver, "n1", "ghost")
        await driver.wait(minutes=3)
        assert (await driver.status("lost"), await driver.node_of("lost")) == ("Running", "n1")
        (record,) = _records(driver)
        assert (record.workload_id, record.action) == ("ghost", "operator_investigation")
        allocation = driver.cluster.api().view.allocation("n1")
        assert allocation is not None
        assert allocation.value.workload_count == 2
        assert driver.calls("delete") == 0


@virtual_time()
async def test_adopt_leaves_what_does_not_fit(clock: VirtualClock) -> None:
    """A workload for which the ledger has no room is reported, and stays pending."""
    small = evolve(existing_agent("n1"), cpu_millicores=1500)
    async with running_cluster(clock, small, config=_policy(ADOPT)) as driver:
        await driver.apply("w")
        await driver.wait(minutes=1)
        await driver.apply("lost")
        revision = (await driver.view("lost")).workload.revision_id
        _sneak(driver, "n1", "lost", revision=revision)
        await driver.wait(minutes=3)
        assert await driver.status("lost") == "Pending"
        (record,) = _records(driver)
        assert "no room" in record.last_error


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "left"), [(REPORT, 2), (DELETE, 1)])
@virtual_time()
async def test_a_duplicate_goes_only_under_delete(
    clock: VirtualClock, policy: OrphanPolicy, left: int
) -> None:
    """A second copy on another node is reported, or deleted; the assigned one runs on."""
    async with _one_running(clock, machine, _policy(policy)) as driver:
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=10)
        revision = (await driver.view("w")).workload.revision_id
        _sneak(driver, "n2", "w", revision=revision)
        await driver.wait(minutes=5)
        assert sum("w" in _runs(driver, node) for node in ("n1", "n2")) == left
        assert "w" in _runs(driver, "n1")
        assert driver.calls("delete", "w", "n1") == 0
        assert len(_records(driver)) == left - 1


@pytest.mark.slow
@virtual_time()
async def test_a_second_copy_stays_until_the_node_of_the_first_was_listed_again(
    clock: VirtualClock,
) -> None:
    """A node that is heard again may have come back without it (simulator, seed 8005)."""
    async with _one_running(clock, existing_agent, _policy(DELETE)) as driver:
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=10)
        machines, revision = driver.cluster.machines, (await driver.view("w")).workload.revision_id
        machines.kill("n1", wipe=True)
        await driver.wait(seconds=45)
        _sneak(driver, "n2", "w", revision=revision)
        await driver.wait(minutes=1)
        machines.network.cut("n1", to_node=True, from_node=False)
        machines.revive("n1")
        await driver.wait(minutes=1)
        view, _ = await driver.cluster.api().queries.get_node("n1")
        assert view.status is NodeStatus.READY
        assert (await driver.node_of("w"), driver.calls("delete", "w", "n2")) == ("n1", 0)
        machines.network.cut("n1", to_node=False, from_node=False)
        await driver.wait(minutes=4)
        assert (_runs(driver, "n1"), _runs(driver, "n2")) == ({"w"}, set())


@virtual_time()
async def test_an_orphan_that_is_assigned_to_its_node_is_none_any_more(clock: VirtualClock) -> None:
    """However long the workload takes to come to what is wished there (simulator, seed 707)."""
    async with _one_running(clock, machine) as driver:
        _sneak(driver, "n1", "v")
        await driver.wait(minutes=2)
        (record,) = _records(driver)
        assert record.drift_type is DriftType.ORPHAN_ON_AGENT
        await driver.apply("v", container("slow"))
        await driver.wait(seconds=70)
        assert (await driver.status("v"), await driver.node_of("v")) == ("Scheduled", "n1")
        assert not _records(driver)


@virtual_time()
async def test_a_second_copy_stays_while_the_node_of_the_first_is_silent(
    clock: VirtualClock,
) -> None:
    """What was last seen to run there may be gone by now, and this the only copy (simulator)."""
    async with _one_running(clock, machine, _policy(DELETE)) as driver:
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=10)
        revision = (await driver.view("w")).workload.revision_id
        driver.cluster.machines.kill("n1")
        await driver.wait(seconds=45)
        _sneak(driver, "n2", "w", revision=revision)
        await driver.wait(minutes=2)
        assert (await driver.node_of("w"), driver.calls("delete", "w", "n2")) == ("n1", 0)
        assert "silent" in _records(driver)[0].last_error
        driver.cluster.machines.revive("n1")
        await driver.wait(minutes=2)
        assert (_runs(driver, "n1"), _runs(driver, "n2")) == ({"w"}, set())


@virtual_time()
async def test_a_new_leader_does_not_tell_again(clock: VirtualClock) -> None:
    """The record says that it was told; a replica that takes over keeps it and is silent."""
    async with running_cluster(clock, existing_agent("n1"), replicas=2) as driver:
        await driver.apply("w")
        await driver.wait(minutes=1)
        _sneak(driver, "n1", "ghost")
        await driver.wait(minutes=2)
        leader = next(each for each in driver.cluster.replicas if each.scheduler.is_leader)
        await driver.cluster.crash(leader)
        await driver.wait(minutes=5)
        assert len(await _told(driver)) == 1
        assert len(_records(driver)) == 1


@virtual_time()
async def test_records_go_with_their_node(clock: VirtualClock) -> None:
    """A record of a node that is not in the cluster, as the reference leaves behind, is removed;
    so is one of the reference that is resolved."""
    async with _one_running(clock, machine) as driver:
        stale = DriftRecord("gone", "w", DriftType.STATE_MISMATCH, clock.now(), resolved=True)
        here = evolve(stale, node_id="n1")
        await _write(
            driver,
            Put(Key.drift("gone", "w", stale.drift_type), stale),
            Put(Key.drift("n1", "w", stale.drift_type), here),
        )
        await driver.wait(minutes=1)
        assert _records(driver) == []
        assert await _told(driver) == []

"""A workload of which a copy runs on although no record says so is bound to it, not started twice.

Such copies are left by a store that was emptied or restored, and by a forced delete.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.orphan_copies import OrphanCopies
from persys_core.control.requests import NodeIntentChange
from persys_core.control.view import ClusterView
from persys_core.model.drift import DriftRecord, DriftType
from persys_core.model.ids import NodeId
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState
from persys_core.model.workload import Assignment
from persys_core.placement.explain import ReasonCode, Verdict
from persys_core.ports.agents import ApplyRequest, DeleteRequest
from persys_core.ports.cluster_store import Change, Key, Kind, Snapshot, Versioned
from persys_core.sim.agent_settings import AgentSettings, existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, make_node, running_cluster, wish
from tests.unit.control.test_recovery import acknowledged, restart, running, working_cluster

pytestmark = pytest.mark.slow

_NOT_ON_N1 = {"persys.scheduling.exclude_nodes": "n1"}


@asynccontextmanager
async def _cluster(
    clock: VirtualClock, *machines: AgentSettings, replicas: int = 1
) -> AsyncIterator[Driver]:
    """One that is at work: in a fresh one a copy would be the sign of a lost store."""
    async with running_cluster(clock, *machines, replicas=replicas) as driver:
        await driver.apply("first", container(cpu=10, metadata=_NOT_ON_N1))
        await driver.wait(seconds=30)
        yield driver


def _where(driver: Driver, workload_id: str) -> list[NodeId]:
    now = driver.clock.now()
    machines = driver.cluster.machines
    return sorted(each.settings.node_id for each in machines if workload_id in each.running(now))


def _sneak(driver: Driver, node_id: NodeId, workload_id: str, revision: str = "other") -> None:
    """Apply past the scheduler: what is left where a store was lost."""
    request = ApplyRequest(workload_id, revision, DesiredState.RUNNING, container(), 0)
    driver.cluster.machines.model(node_id).apply(request, driver.clock.now())


def _remove(driver: Driver, node_id: NodeId, workload_id: str) -> None:
    driver.cluster.machines.model(node_id).delete(DeleteRequest(workload_id, 0), driver.clock.now())


def _drifts(driver: Driver) -> list[DriftRecord]:
    return list(driver.cluster.api().view.values(Kind.DRIFT, DriftRecord))


@virtual_time()
async def test_the_same_spec_takes_the_copy_over_without_a_call(clock: VirtualClock) -> None:
    """After an acknowledgement each spec is applied again: all run on where they ran."""
    async with working_cluster(clock) as driver:
        before = {each: _where(driver, each) for each in running(driver)}
        await restart(driver)
        await acknowledged(driver)
        await driver.wait(minutes=2)
        applies = driver.calls("apply")
        for workload_id, places in before.items():
            plan, _ = await driver.cluster.api().queries.plan(wish(workload_id))
            answer = await driver.apply(workload_id)
            assert [answer.node_id] == [plan.node_id] == places
            assert plan.explanation.verdict is Verdict.PLACED
            assert f"a copy of it runs on {plan.node_id}" in plan.explanation.summary
        await driver.wait(minutes=3)
        assert {each: _where(driver, each) for each in before} == before
        assert {await driver.status(each) for each in before} == {"Running"}
        assert driver.calls("apply") == applies
        assert _drifts(driver) == []
        allocations = [driver.cluster.api().view.allocation(each) for each in ("n0", "n1", "n2")]
        assert sum(each.value.workload_count for each in allocations if each) == len(before)


@virtual_time()
async def test_an_apply_at_once_takes_the_copy_over_too(clock: VirtualClock) -> None:
    """No drift record is waited for, and nothing starts before the agents are back."""
    async with working_cluster(clock) as driver:
        before = {each: _where(driver, each) for each in running(driver)}
        await restart(driver)
        await acknowledged(driver)
        applies = driver.calls("apply")
        for workload_id in before:
            await driver.apply(workload_id)
        await driver.wait(minutes=3)
        assert {each: _where(driver, each) for each in before} == before
        assert {await driver.status(each) for each in before} == {"Running"}
        assert driver.calls("apply") == applies


@virtual_time()
async def test_another_spec_updates_the_copy_in_place(clock: VirtualClock) -> None:
    """One apply, on the node that runs the old revision."""
    async with working_cluster(clock) as driver:
        [node_id] = _where(driver, "w0")
        await restart(driver)
        await acknowledged(driver)
        await driver.wait(seconds=60)
        applies = driver.calls("apply", "w0")
        await driver.apply("w0", container("nginx:2"))
        await driver.wait(minutes=2)
        assert _where(driver, "w0") == [await driver.node_of("w0")] == [node_id]
        assert driver.calls("apply", "w0", node_id) == driver.calls("apply", "w0") == applies + 1
        assert await driver.status("w0") == "Running"


@virtual_time()
async def test_a_record_of_the_drift_is_enough(clock: VirtualClock) -> None:
    """A replica that no node speaks with knows of the copy by its drift record."""
    agents = existing_agent("n1"), existing_agent("n2")
    async with _cluster(clock, *agents, replicas=2) as driver:
        _sneak(driver, "n2", "w")
        await driver.wait(minutes=2)
        assert [each.node_id for each in _drifts(driver)] == ["n2"]
        [other] = [each for each in driver.cluster.replicas if not each.scheduler.is_leader]
        other.scheduler._copies._seen.clear()
        other.scheduler._copies._listed_at.clear()
        answer = await other.scheduler.admission.apply_workload(wish("w"))
        assert answer.node_id == "n2"


@pytest.mark.slow
@virtual_time()
async def test_a_node_that_cannot_take_its_copy_keeps_it_from_starting_elsewhere(
    clock: VirtualClock,
) -> None:
    """The node is full: Pending with the reason, in plan and explain too, until there is room."""
    small = evolve(machine("n1"), cpu_millicores=1500)
    async with _cluster(clock, small, machine("n2")) as driver:
        await driver.apply("big", container(metadata={"persys.scheduling.exclude_nodes": "n2"}))
        await driver.wait(seconds=30)
        _sneak(driver, "n1", "w")
        await driver.wait(seconds=20)
        plan, _ = await driver.cluster.api().queries.plan(wish("w"))
        answer = await driver.apply("w")
        assert answer.node_id == plan.node_id == ""
        explanation = await driver.cluster.api().queries.explain("w")
        for told in (plan.explanation, answer.explanation, explanation):
            assert told is not None
            assert told.reasons[0].code is ReasonCode.ORPHAN_COPY
            assert told.summary == (
                "a copy of it runs on n1, which no record explains; n1 cannot take it:"
                " cpu (asked 1000, 500 millicores free); remove that copy or make room"
            )
        await driver.wait(minutes=2)
        assert await driver.status("w") == "Pending"
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert reason.code == "orphan_copy"
        assert driver.calls("apply", "w", "n2") == 0
        await driver.cluster.api().admission.delete_workload("big", force=False)
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")
        assert _where(driver, "w") == ["n1"]


@virtual_time()
async def test_a_cordoned_node_is_no_place_and_a_removed_copy_none_to_wait_for(
    clock: VirtualClock,
) -> None:
    """The reason names what the node lacks; an operator may remove the copy instead."""
    async with _cluster(clock, machine("n1"), machine("n2")) as driver:
        _sneak(driver, "n1", "w")
        await driver.cluster.api().nodes.cordon(NodeIntentChange("n1"))
        await driver.wait(seconds=20)
        answer = await driver.apply("w")
        assert answer.explanation is not None
        assert "n1 cannot take it: cordoned" in answer.explanation.summary
        await driver.wait(seconds=60)
        assert _where(driver, "w") == ["n1"]
        _remove(driver, "n1", "w")
        await driver.wait(seconds=60)
        assert _where(driver, "w") == [await driver.node_of("w")] == ["n2"]


@virtual_time()
async def test_a_silent_node_is_not_waited_for(clock: VirtualClock) -> None:
    """It may never come back, and what it runs is not known."""
    async with _cluster(clock, machine("n1"), machine("n2")) as driver:
        _sneak(driver, "n1", "w")
        await driver.wait(minutes=2)
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=2)
        assert (await driver.apply("w")).node_id == "n2"


@virtual_time()
async def test_of_several_copies_the_first_is_taken_over_and_the_rest_are_drift(
    clock: VirtualClock,
) -> None:
    """The first by id; the answer and the drift's note say where the others are."""
    async with _cluster(clock, *map(machine, ("n1", "n2", "n3"))) as driver:
        for node_id in ("n3", "n2"):
            _sneak(driver, node_id, "w")
        await driver.wait(minutes=2)
        answer = await driver.apply("w")
        assert answer.node_id == "n2"
        assert answer.explanation is not None
        assert "another copy runs on n3: remove it there" in answer.explanation.summary
        await driver.wait(minutes=2)
        [left] = _drifts(driver)
        assert left.node_id == "n3"
        assert left.last_error.startswith("also runs on n2, where it is assigned")


@virtual_time()
async def test_a_workload_that_waits_is_bound_to_a_copy_that_shows_up(clock: VirtualClock) -> None:
    """It waits for a free node; what it waits for is the node of the copy from then on."""
    small = evolve(machine("n2"), cpu_millicores=500)
    async with _cluster(clock, machine("n1"), small) as driver:
        await driver.cluster.api().nodes.cordon(NodeIntentChange("n1"))
        await driver.apply("w")
        assert await driver.status("w") == "Pending"
        _sneak(driver, "n1", "w")
        await driver.wait(seconds=20)
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert reason.code == "orphan_copy"
        await driver.cluster.api().nodes.uncordon(NodeIntentChange("n1"))
        await driver.wait(seconds=20)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")


@virtual_time()
async def test_what_a_forced_delete_left_is_taken_over(clock: VirtualClock) -> None:
    """Its node answers no call, so the copy runs on, unrecorded; the next apply finds it."""
    async with _cluster(clock, machine("n1"), machine("n2"), machine("n3")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=60)
        [node_id] = _where(driver, "w")
        driver.cluster.machines.network.cut(node_id)
        await driver.wait(seconds=30)
        delete = driver.cluster.api().admission.delete_workload
        await delete("w", force=True)
        driver.cluster.machines.network.cut(node_id, to_node=False, from_node=False)
        await driver.wait(seconds=30)
        applies = driver.calls("apply", "w")
        assert _where(driver, "w") == [node_id]
        assert (await driver.apply("w")).node_id == node_id
        await driver.wait(seconds=60)
        assert (await driver.status("w"), _where(driver, "w")) == ("Running", [node_id])
        assert driver.calls("apply", "w") == applies


@virtual_time()
async def test_a_deleted_workload_is_no_copy_of_its_successor(clock: VirtualClock) -> None:
    """Deleted and applied again at once: where its node is closed by then it starts elsewhere."""
    async with _cluster(clock, machine("n1"), machine("n2")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=60)
        old = await driver.node_of("w")
        await driver.cluster.api().nodes.cordon(NodeIntentChange(old))
        await driver.cluster.api().admission.delete_workload("w", force=False)
        while driver.cluster.api().view.workload("w") is not None:
            await driver.wait(seconds=0.1)
        assert (await driver.apply("w")).node_id == ({"n1", "n2"} - {old}).pop()


def _known(clock: VirtualClock) -> tuple[ClusterView, OrphanCopies]:
    """What a replica knows of ``n1``, which beats."""
    view = ClusterView()
    copies = OrphanCopies(view, clock, lambda _: True)
    view.load(Snapshot(1, {Key.node("n1"): Versioned(make_node(), 1, 1)}))
    return view, copies


@virtual_time()
async def test_a_report_that_may_be_older_than_the_end_of_its_record_is_none(
    clock: VirtualClock,
) -> None:
    """What was on its way when a workload was confirmed gone shows no copy; what comes later does,
    and a full listing without it ends it."""
    view, copies = _known(clock)
    held = Assignment("w", "", "n1", Resources(), "", clock.now())
    key, report = Key.assignment("w"), AgentReport("w", AgentState.RUNNING, "r")
    view.apply(2, [Change(key, Versioned(held, 2, 2))])
    assert not copies.take("n1", [report], clock.now(), full=True)
    view.apply(3, [Change(key, None)])
    assert not copies.take("n1", [report], clock.now(), full=True)
    await clock.sleep(timedelta(seconds=5))
    assert copies.take("n1", [report], clock.now(), full=True) == {"w"}
    assert copies.of("w") == ("n1",)
    assert copies.take("n1", [], clock.now(), full=True) == {"w"}
    assert copies.of("w") == ()


@virtual_time()
async def test_the_note_of_a_stop_is_no_copy(clock: VirtualClock) -> None:
    """Its runtime has nothing, and the agent will not make it anew; one that is told to run it
    would (simulator, seed 1, elastic)."""
    gone = AgentReport("w", AgentState.UNKNOWN, "r", message="container not found")
    copies = OrphanCopies(ClusterView(), clock, lambda _: True)
    stopped = evolve(gone, desired_state=DesiredState.STOPPED)
    assert not copies.take("n1", [stopped], clock.now(), full=True)
    wanted = evolve(gone, desired_state=DesiredState.RUNNING)
    assert copies.take("n1", [wanted], clock.now(), full=True) == {"w"}


@virtual_time()
async def test_a_full_listing_counts_for_more_than_a_record(clock: VirtualClock) -> None:
    """A record of a copy that was removed since stands until the next look for drift."""
    view, copies = _known(clock)
    record = DriftRecord("n1", "w", DriftType.ORPHAN_ON_AGENT, clock.now(), "", "Running")
    view.apply(2, [Change(Key.drift("n1", "w", record.drift_type), Versioned(record, 2, 2))])
    assert copies.of("w") == ("n1",)
    copies.take("n1", [], clock.now(), full=True)
    assert copies.of("w") == ()
    await clock.sleep(timedelta(minutes=1))
    assert copies.of("w") == ("n1",)

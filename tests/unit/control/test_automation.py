"""Suggestions of automation: carried out once, each with an event, and refused with a reason."""

import asyncio
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.answers import AutomationDecision
from persys_core.control.automation import REMEMBERED_FOR, UNNAMED_REMEMBERED_FOR
from persys_core.control.requests import AutomationAction, AutomationSuggestion
from persys_core.model.errors import InvalidInputError
from persys_core.model.states import DesiredState
from persys_core.modes.machine import ModeEvent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

STOP = AutomationSuggestion(
    "w",
    AutomationAction.SET_DESIRED_STATE,
    policy_id="p1",
    policy_name="night",
    desired_state=DesiredState.STOPPED,
    reason="nobody is there",
)
START = evolve(STOP, desired_state=DesiredState.RUNNING)
RETRY = AutomationSuggestion("w", AutomationAction.RETRY_WORKLOAD, "s-retry")
DELETE = AutomationSuggestion("w", AutomationAction.DELETE_WORKLOAD, "s-delete")
SCALE = AutomationSuggestion("w", AutomationAction.SCALE_REPLICAS, "s-scale")


async def submit(driver: Driver, suggestion: AutomationSuggestion) -> AutomationDecision:
    """What becomes of ``suggestion``."""
    return await driver.cluster.api().automation.submit(suggestion)


async def audit(driver: Driver) -> list[tuple[str, str]]:
    """Type and reason of every audit event, oldest first."""
    return [
        (str(event.type), event.reason)
        for event in await driver.events()
        if event.type.startswith("Automation")
    ]


async def desired(driver: Driver) -> DesiredState:
    """The stored wish."""
    return (await driver.view("w")).workload.desired_state


@virtual_time()
async def test_each_action_is_carried_out_and_audited(clock: VirtualClock) -> None:
    """Set desired state, retry and delete: accepted with the action's word, one event each that
    names policy, suggestion and action."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        for suggestion, action, reason in (
            (STOP, "set_desired_state", "desired state change accepted"),
            (RETRY, "retry_workload", "retry accepted"),
            (DELETE, "delete_workload", "delete accepted"),
        ):
            answer = await submit(driver, suggestion)
            assert (answer.accepted, answer.decision) == (True, "accepted")
            assert (answer.applied_action, answer.reason) == (action, reason)
            assert answer.decided_at == clock.now()
        assert await desired(driver) is DesiredState.DELETED
        assert [kind for kind, _ in await audit(driver)] == ["AutomationApplied"] * 3
        [first, *_] = await driver.events("AutomationApplied", "w")
        assert first.details == {
            "policy_id": "p1",
            "policy_name": "night",
            "action": "set_desired_state",
            "desired_state": "Stopped",
            "suggested_because": "nobody is there",
        }


@pytest.mark.slow
@virtual_time()
async def test_a_suggestion_is_carried_out_once(clock: VirtualClock) -> None:
    """Idempotent by suggestion_id: a repetition is answered with the first decision, changes
    nothing even where the wish has changed since, and makes no second event."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        stop = evolve(STOP, suggestion_id="s1")
        first = await submit(driver, stop)
        await driver.desire("w", DesiredState.RUNNING)
        await driver.wait(minutes=30)
        assert await submit(driver, stop) == first
        assert await desired(driver) is DesiredState.RUNNING
        assert len(await audit(driver)) == 1
        await driver.wait(seconds=REMEMBERED_FOR.total_seconds())
        assert (await submit(driver, stop)).decided_at > first.decided_at


@virtual_time()
async def test_equal_suggestions_at_once_are_one(clock: VirtualClock) -> None:
    """A client that gave up waiting and sends again meets the first decision, not a second run."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        answers = await asyncio.gather(*(submit(driver, RETRY) for _ in range(5)))
        assert len(set(answers)) == 1
        assert len(await audit(driver)) == 1


@virtual_time()
async def test_without_an_id_target_and_action_tell(clock: VirtualClock) -> None:
    """The same suggestion soon after is a repetition; after another one for the workload, or much
    later, it is meant anew."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        first = await submit(driver, STOP)
        await driver.wait(seconds=10)
        assert await submit(driver, STOP) == first
        assert (await submit(driver, START)).decided_at == clock.now()
        assert (await submit(driver, STOP)).decided_at == clock.now()
        assert await desired(driver) is DesiredState.STOPPED
        await driver.desire("w", DesiredState.RUNNING)
        await driver.wait(seconds=(UNNAMED_REMEMBERED_FOR + timedelta(seconds=1)).total_seconds())
        assert (await submit(driver, STOP)).decided_at == clock.now()
        assert await desired(driver) is DesiredState.STOPPED


@virtual_time()
async def test_an_id_belongs_to_one_suggestion(clock: VirtualClock) -> None:
    """Another suggestion under a used id is rejected, and the first one stays remembered."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        first = await submit(driver, evolve(STOP, suggestion_id="s1"))
        other = await submit(driver, evolve(START, suggestion_id="s1"))
        assert not other.accepted
        assert 'suggestion_id "s1" was used for another suggestion' in other.reason
        assert await desired(driver) is DesiredState.STOPPED
        assert await submit(driver, evolve(STOP, suggestion_id="s1")) == first
        assert [kind for kind, _ in await audit(driver)] == [
            "AutomationApplied", "AutomationRejected",
        ]  # fmt: skip


@virtual_time()
async def test_what_cannot_be_done_is_rejected_with_a_reason(clock: VirtualClock) -> None:
    """Unknown target, a workload that is being deleted, replicas and unknown actions: rejected,
    audited, and nothing applied."""
    async with running_cluster(clock, machine("n1")) as driver:
        unknown = await submit(driver, RETRY)
        assert (unknown.accepted, unknown.decision, unknown.applied_action) == (
            False, "rejected", "",
        )  # fmt: skip
        assert unknown.reason == 'workload "w" not found'
        await driver.apply("w")
        assert (await submit(driver, RETRY)) == unknown, "a repetition gets the first decision"
        scaled = await submit(driver, SCALE)
        assert scaled.reason.startswith("replica updates are not supported by scheduler contract")
        odd = await submit(driver, AutomationSuggestion("w", AutomationAction.UNSUPPORTED))
        assert odd.reason == "unsupported automation action type"
        await driver.wait(seconds=20)
        await submit(driver, DELETE)
        going = await submit(driver, STOP)
        assert not going.accepted
        assert "is being deleted" in going.reason
        kinds = [kind for kind, _ in await audit(driver)]
        assert kinds.count("AutomationRejected") == 4
        assert kinds.count("AutomationApplied") == 1


@virtual_time()
async def test_frozen_suggestions_are_rejected_and_may_come_again(clock: VirtualClock) -> None:
    """Frozen: accepted=false with the reference's words, not an error; it is no decision, so the
    same suggestion is accepted once the store is back."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        modes = driver.cluster.api().modes
        before = modes.state
        modes.report(ModeEvent.OPERATION_EXHAUSTED, "store away")
        assert modes.is_frozen
        frozen = await submit(driver, RETRY)
        assert (frozen.accepted, frozen.decision) == (False, "rejected")
        assert frozen.reason.startswith("scheduler degraded/recovery mode")
        modes.state = before
        assert (await submit(driver, RETRY)).accepted
        assert [kind for kind, _ in await audit(driver)] == [
            "AutomationRejected", "AutomationApplied",
        ]  # fmt: skip


@virtual_time()
async def test_bad_suggestions_are_bad_input(clock: VirtualClock) -> None:
    """A01: no target, or no possible desired state, names the field and leaves no trace."""
    async with running_cluster(clock, machine("n1")) as driver:
        for suggestion, field in (
            (evolve(RETRY, target=""), "suggestion.target_workload"),
            (evolve(STOP, desired_state=None), "suggestion.desired_state"),
            (evolve(STOP, desired_state=DesiredState.DELETED), "suggestion.desired_state"),
        ):
            with pytest.raises(InvalidInputError) as refused:
                await submit(driver, suggestion)
            assert [error.field for error in refused.value.errors] == [field]
        assert await audit(driver) == []


@virtual_time()
async def test_another_replica_meets_the_same_records(clock: VirtualClock) -> None:
    """Memory is one replica's own: elsewhere the repetition changes nothing by itself, since the
    wish is stored already."""
    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        await driver.apply("w", container())
        one, two = (replica.scheduler for replica in driver.cluster.replicas)
        stop = evolve(STOP, suggestion_id="s1")
        assert (await one.automation.submit(stop)).accepted
        await driver.wait(seconds=20)
        stored = one.view.workload("w")
        assert (await two.automation.submit(stop)).accepted
        await driver.wait(seconds=1)
        assert one.view.workload("w") == stored

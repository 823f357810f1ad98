from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, product

import pytest
from attrs import evolve

from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import Failure, FailureKind, Reason, RetryState
from persys_core.retry.failure import classify_failure, infrastructure_failure
from persys_core.retry.machine import (
    TRANSITIONS,
    EventKind,
    Outcome,
    Phase,
    Verdict,
    effective,
    may_try,
    on_failure,
    on_manual_retry,
    on_new_revision,
    on_settled,
    on_time,
    phase_of,
)
from persys_core.retry.policy import RetryPolicy

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RetryPolicy()
CLEAN = RetryState()
WAITING = RetryState(attempts=2, next_at=T0 + timedelta(seconds=10), first_failure_at=T0)
DUE = evolve(WAITING, next_at=T0)
EXHAUSTED = RetryState(attempts=5, first_failure_at=T0 - timedelta(hours=1), exhausted=True)
STATES = {
    Phase.CLEAN: CLEAN,
    Phase.WAITING: WAITING,
    Phase.DUE: DUE,
    Phase.EXHAUSTED: EXHAUSTED,
}


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def failure(kind: FailureKind, when: datetime, code: str = "exited") -> Failure:
    return Failure(code, "exited with code 1", kind, when)


def own_failure(when: datetime) -> Failure:
    return failure(FailureKind.WORKLOAD, when)


def happen(kind: EventKind, state: RetryState) -> Outcome:
    """What ``kind`` does to ``state`` at T0."""
    match kind:
        case EventKind.SETTLED:
            return on_settled(state, POLICY, T0)
        case EventKind.NEW_REVISION:
            return on_new_revision(state, POLICY, T0)
        case EventKind.MANUAL_RETRY:
            return on_manual_retry(state, POLICY, T0)
        case EventKind.TIME:
            return on_time(state, POLICY, T0)
        case _:
            counted = FailureKind(kind.removesuffix("_failure"))
            return on_failure(state, failure(counted, T0), POLICY)


def test_the_table_is_total() -> None:
    """Every event has a transition in every phase."""
    assert set(TRANSITIONS) == set(product(Phase, EventKind))


V = Verdict
EXPECTED = {
    # event: CLEAN, WAITING, DUE, EXHAUSTED
    EventKind.INFRASTRUCTURE_FAILURE: (V.RETRY_LATER, V.UNCHANGED, V.RETRY_LATER, V.UNCHANGED),
    EventKind.WORKLOAD_FAILURE: (V.RETRY_LATER, V.UNCHANGED, V.RETRY_LATER, V.UNCHANGED),
    EventKind.PERMANENT_FAILURE: (V.GIVEN_UP, V.GIVEN_UP, V.GIVEN_UP, V.UNCHANGED),
    EventKind.SETTLED: (V.UNCHANGED, V.QUIET, V.QUIET, V.UNCHANGED),
    EventKind.NEW_REVISION: (V.UNCHANGED, V.CLEARED, V.CLEARED, V.CLEARED),
    EventKind.MANUAL_RETRY: (V.UNCHANGED, V.CLEARED, V.CLEARED, V.CLEARED),
    EventKind.TIME: (V.UNCHANGED, V.UNCHANGED, V.DUE, V.UNCHANGED),
}


@pytest.mark.parametrize(("kind", "verdicts"), [*EXPECTED.items()])
def test_each_event_in_each_phase(kind: EventKind, verdicts: tuple[Verdict, ...]) -> None:
    """The verdicts are those of the module's table."""
    found = tuple(happen(kind, state).verdict for state in STATES.values())
    assert found == verdicts


@pytest.mark.parametrize(("kind", "phase"), [*product(EventKind, Phase)])
def test_what_changes_nothing_gives_back_the_same_state(kind: EventKind, phase: Phase) -> None:
    """UNCHANGED and DUE mean that nothing is to be written: the object itself comes back."""
    outcome = happen(kind, STATES[phase])
    if outcome.verdict in (Verdict.UNCHANGED, Verdict.DUE):
        assert outcome.state is STATES[phase]
        assert outcome.status is None
    else:
        assert outcome.state != STATES[phase]


def test_phases_of_a_state_at_an_instant() -> None:
    """A state is due at its time and not a microsecond earlier."""
    assert {phase_of(state, T0): state for state in STATES.values()} == STATES
    due_at = at(10)
    assert not may_try(WAITING, due_at - timedelta(microseconds=1))
    assert may_try(WAITING, due_at)
    assert not may_try(EXHAUSTED, due_at)
    assert may_try(CLEAN, T0)


def fail_until_given_up(kind: FailureKind, *, limit: int = 20) -> list[tuple[float, Outcome]]:
    """Try at once, and again as soon as may be; when each try failed, and what followed."""
    state, now, outcomes = CLEAN, T0, []
    for _ in range(limit):
        outcome = on_failure(state, failure(kind, now), POLICY)
        outcomes.append(((now - T0).total_seconds(), outcome))
        state = outcome.state
        if state.next_at is None:
            break
        now = state.next_at
    return outcomes


def test_tries_follow_the_table_and_end_once() -> None:
    """Tries at 0, 5, 15, 35, 75 and 155 s; Failed once, after the grace (R01, R03)."""
    outcomes = fail_until_given_up(FailureKind.WORKLOAD)
    assert [when for when, _ in outcomes] == [0, 5, 15, 35, 75, 155]
    statuses = [outcome.status for _, outcome in outcomes]
    assert statuses == [WorkloadStatus.RETRY_PENDING] * 5 + [WorkloadStatus.FAILED]
    assert [outcome.state.attempts for _, outcome in outcomes] == [1, 2, 3, 4, 4, 5]
    assert outcomes[-1][1].verdict is Verdict.GIVEN_UP
    assert outcomes[-1][1].state.exhausted


def test_an_outage_spends_no_attempt() -> None:
    """An agent that is away for long is asked again and again, slowly, without an end (R03)."""
    outcomes = fail_until_given_up(FailureKind.INFRASTRUCTURE, limit=30)
    assert len(outcomes) == 30
    assert {outcome.state.attempts for _, outcome in outcomes} == {0}
    gaps = [later[0] - sooner[0] for sooner, later in pairwise(outcomes)]
    assert gaps[:6] == [5, 10, 20, 40, 80, 120]
    assert set(gaps[6:]) == {120}


def test_an_invalid_spec_fails_on_the_first_try() -> None:
    """What no retry can help is given up at once, within the grace too (R03)."""
    outcome = on_failure(CLEAN, classify_failure("INVALID_SPEC", "invalid spec", T0), POLICY)
    assert outcome.verdict is Verdict.GIVEN_UP
    assert outcome.status is WorkloadStatus.FAILED
    assert outcome.reason is not None
    assert not outcome.reason.retryable
    assert outcome.reason.next_try_at is None


def test_after_the_grace_the_budget_is_all_there_is() -> None:
    """The grace runs from the first failure, and does not begin again with a later one."""
    state = RetryState(attempts=4, first_failure_at=T0, next_at=at(120))
    assert on_failure(state, own_failure(at(120)), POLICY).verdict is Verdict.GIVEN_UP
    within = evolve(state, next_at=at(119))
    outcome = on_failure(within, own_failure(at(119)), POLICY)
    assert outcome.verdict is Verdict.RETRY_LATER
    assert outcome.state.attempts == 4


def test_given_up_is_sticky() -> None:
    """No later failure opens a new grace or says Failed once more (defect C9, C10)."""
    state = EXHAUSTED
    for kind, hours in product(FailureKind, (1, 24, 24 * 365)):
        outcome = on_failure(state, failure(kind, T0 + timedelta(hours=hours)), POLICY)
        assert outcome == Outcome(state, Verdict.UNCHANGED)


@pytest.mark.parametrize("renew", [on_new_revision, on_manual_retry])
def test_a_new_wish_forgets_every_failure(
    renew: object,
) -> None:
    """A new revision or a retry by the user starts with a whole budget, at once (defect C8)."""
    assert callable(renew)
    outcome = renew(evolve(EXHAUSTED, avoid_node_id="n1"), POLICY, T0)
    assert outcome == Outcome(RetryState(), Verdict.CLEARED, WorkloadStatus.PENDING)
    assert may_try(outcome.state, T0)


def test_a_stable_run_makes_the_budget_new_when_it_is_needed() -> None:
    """Ten minutes as wished count, nine do not, and nothing is written before (defect C7)."""
    spent = RetryState(attempts=4, first_failure_at=T0)
    later = at(3600)
    stable, short = later - POLICY.stable_after, later - timedelta(minutes=9)
    assert on_failure(spent, own_failure(later), POLICY, settled_since=stable).state.attempts == 1
    given_up = on_failure(spent, own_failure(later), POLICY, settled_since=short)
    assert given_up.verdict is Verdict.GIVEN_UP
    assert on_settled(spent, POLICY, later).state is spent


def test_a_stable_run_ends_even_a_verdict() -> None:
    """What was given up and ran well for long all the same is tried again when it fails."""
    outcome = on_failure(EXHAUSTED, own_failure(at(3600)), POLICY, settled_since=at(3600 - 600))
    assert outcome.verdict is Verdict.RETRY_LATER
    assert outcome.state.attempts == 1


def test_the_effective_budget_is_the_same_object_until_it_is_new() -> None:
    """Whoever asks can tell by identity whether the stable run counted."""
    spent = RetryState(attempts=3)
    assert effective(spent, None, POLICY, T0) is spent
    assert effective(spent, T0, POLICY, at(599)) is spent
    assert effective(spent, T0, POLICY, at(600)) == RetryState()
    assert effective(CLEAN, T0, POLICY, at(600)) is CLEAN


def test_settling_turns_the_timer_off_and_keeps_what_was_spent() -> None:
    """A workload that came up keeps its attempts until it ran well for long."""
    waiting = evolve(WAITING, infrastructure_failures=3, avoid_node_id="n1")
    outcome = on_settled(waiting, POLICY, T0)
    assert outcome.state == RetryState(attempts=2, first_failure_at=T0)


def test_a_failure_seen_again_while_waiting_spends_nothing() -> None:
    """A level-triggered loop sees one failure many times; it counts once."""
    first = on_failure(CLEAN, own_failure(T0), POLICY).state
    for second in range(5):
        assert on_failure(first, own_failure(at(second)), POLICY).state is first


def test_a_node_that_refuses_is_avoided() -> None:
    """A refusal at admission names the node to placement; a missing image does not (R01)."""
    refused = classify_failure("", "OutOfCpu", T0)
    assert on_failure(CLEAN, refused, POLICY, node_id="n1").state.avoid_node_id == "n1"
    absent = classify_failure("", "image not found", T0)
    assert on_failure(CLEAN, absent, POLICY, node_id="n1").state.avoid_node_id == ""


def test_an_own_failure_ends_a_row_of_outages() -> None:
    """The slow retry of infrastructure begins anew after the agent was heard."""
    away = on_failure(CLEAN, infrastructure_failure("agent_unreachable", "x", T0), POLICY).state
    assert away.infrastructure_failures == 1
    assert away.first_failure_at is None
    heard = on_failure(away, own_failure(at(5)), POLICY).state
    assert (heard.infrastructure_failures, heard.attempts) == (0, 1)
    assert heard.first_failure_at == at(5)


def test_reasons_say_what_and_when() -> None:
    """The reason carries the stable code, the text and the next try (C01)."""
    outcome = on_failure(CLEAN, own_failure(T0), POLICY)
    assert outcome.reason == Reason("exited", "exited with code 1", T0, at(5))


def test_a_reason_that_stays_keeps_its_beginning() -> None:
    """*Since* does not move with each retry; another code begins anew (V02)."""
    known = Reason("exited", "…", at(-60))
    same = on_failure(CLEAN, own_failure(T0), POLICY, reason=known)
    other = on_failure(CLEAN, own_failure(T0), POLICY, reason=evolve(known, code="cpu"))
    assert same.reason is not None
    assert same.reason.since == at(-60)
    assert other.reason is not None
    assert other.reason.since == T0


def test_a_budget_of_one_still_has_its_grace() -> None:
    """Even with a single attempt nothing is given up within the grace."""
    policy = RetryPolicy(max_attempts=1)
    outcome = on_failure(CLEAN, own_failure(T0), policy)
    assert outcome.verdict is Verdict.RETRY_LATER
    late = on_failure(outcome.state, own_failure(at(121)), policy)
    assert late.verdict is Verdict.GIVEN_UP
    assert late.state.attempts == 1

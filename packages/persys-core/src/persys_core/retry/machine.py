"""The retry state machine: (phase, event) to the next state, as one total table.

Decided here: when something that failed is tried again, and when it is given up. Not decided
here: what kind a failure is (``failure``), which numbers apply (``policy``), what is written or
sent (``reconcile``). Pure: equal inputs give equal outcomes, and an event that changes nothing
gives back the very state that came in, so that nothing is written.

The phases of a state, at a given instant:

* CLEAN: no retry is set; it may be tried.
* WAITING: it failed, and the next try is not due.
* DUE: it failed, and may be tried again now.
* EXHAUSTED: it was given up, until a new revision, a retry by the user or a stable run.

What each event does:

============== ============ ================ ============ =============
event          CLEAN        WAITING          DUE          EXHAUSTED
============== ============ ================ ============ =============
infrastructure slow retry   nothing (seen)   slow retry   nothing
workload       attempt + 1  nothing (seen)   attempt + 1  nothing
permanent      exhausted    exhausted        exhausted    nothing
settled        timer off    timer off        timer off    nothing
new revision   nothing      clean            clean        clean
manual retry   nothing      clean            clean        clean
time           nothing      nothing          due          nothing
============== ============ ================ ============ =============

A failure while WAITING is the same failure seen again, since nothing is tried before its time. A
stable run makes the budget new, computed when it is next needed (``effective``) and never written
for its own sake (defect C7). EXHAUSTED is sticky: no later failure opens a new grace (defect C9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from random import Random

from attrs import evolve, frozen

from persys_core.model.counted import counted
from persys_core.model.event import capped
from persys_core.model.ids import NodeId
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import Failure, FailureKind, Reason, RetryState
from persys_core.retry.failure import is_node_bound
from persys_core.retry.policy import RetryPolicy

__all__ = [
    "TRANSITIONS",
    "EventKind",
    "Outcome",
    "Phase",
    "Verdict",
    "effective",
    "may_try",
    "on_failure",
    "on_manual_retry",
    "on_new_revision",
    "on_settled",
    "on_time",
    "phase_of",
]


class Phase(StrEnum):
    """Where a retry state stands at an instant."""

    CLEAN = "clean"
    WAITING = "waiting"
    DUE = "due"
    EXHAUSTED = "exhausted"


class EventKind(StrEnum):
    """What can happen to a workload, as far as its budget is concerned."""

    INFRASTRUCTURE_FAILURE = "infrastructure_failure"
    WORKLOAD_FAILURE = "workload_failure"
    PERMANENT_FAILURE = "permanent_failure"
    SETTLED = "settled"
    NEW_REVISION = "new_revision"
    MANUAL_RETRY = "manual_retry"
    TIME = "time"


class Verdict(StrEnum):
    """What an event meant; the caller writes and publishes accordingly."""

    UNCHANGED = "unchanged"
    RETRY_LATER = "retry_later"
    """A retry is set (event RetryTriggered)."""
    GIVEN_UP = "given_up"
    """Failed for good, said once (event WorkloadFailed)."""
    QUIET = "quiet"
    """The timer is off; the budget stays as it is."""
    CLEARED = "cleared"
    """Every trace of old failures is to go: also ``failure`` and ``reason`` of the record (C8)."""
    DUE = "due"
    """It is time to try again; the state does not change by that."""


@frozen
class Outcome:
    """What follows from an event.

    ``status``: the record's next status, None where it does not change. ``reason``: why, and when
    the next try is; None where nothing is to be said.
    """

    state: RetryState
    verdict: Verdict
    status: WorkloadStatus | None = None
    reason: Reason | None = None


@frozen
class _Case:
    """An event with everything that a transition looks at."""

    state: RetryState
    policy: RetryPolicy
    now: datetime
    failure: Failure | None = None
    node_id: NodeId = ""
    reason: Reason | None = None
    rng: Random | None = None


def phase_of(state: RetryState, now: datetime) -> Phase:
    """The phase of ``state`` at ``now``."""
    if state.exhausted:
        return Phase.EXHAUSTED
    if state.next_at is None:
        return Phase.CLEAN
    return Phase.WAITING if now < state.next_at else Phase.DUE


def may_try(state: RetryState, now: datetime) -> bool:
    """Whether an apply may be made at ``now``, as far as the budget is concerned."""
    return phase_of(state, now) in (Phase.CLEAN, Phase.DUE)


def effective(
    state: RetryState, settled_since: datetime | None, policy: RetryPolicy, now: datetime
) -> RetryState:
    """The budget as it counts at ``now``: new after a stable run, else ``state`` itself.

    ``settled_since``: when observed became equal to desired (``StatusRecord.settled_since``),
    None while it is not.
    """
    if settled_since is None or now - settled_since < policy.stable_after:
        return state
    return state if state == RetryState() else RetryState()


def on_failure(
    state: RetryState,
    failure: Failure,
    policy: RetryPolicy,
    *,
    node_id: NodeId = "",
    settled_since: datetime | None = None,
    reason: Reason | None = None,
    rng: Random | None = None,
) -> Outcome:
    """A try failed, at ``failure.at``.

    ``node_id``: where. ``settled_since``: see ``effective``, as it stood before the failure.
    ``reason``: the record's present one, whose ``since`` is kept while its code is the same.
    ``rng``: source of jitter; without it delays are exact.
    """
    counted = effective(state, settled_since, policy, failure.at)
    case = _Case(counted, policy, failure.at, failure, node_id, reason, rng)
    outcome = _step(_FAILURE_EVENTS[failure.kind], case)
    # A failure that is ignored must not write the reset of a stable run by the way.
    return evolve(outcome, state=state) if outcome.verdict is Verdict.UNCHANGED else outcome


def on_settled(state: RetryState, policy: RetryPolicy, now: datetime) -> Outcome:
    """Observed became equal to desired: no retry is pending any more, what was spent stays."""
    return _step(EventKind.SETTLED, _Case(state, policy, now))


def on_new_revision(state: RetryState, policy: RetryPolicy, now: datetime) -> Outcome:
    """The spec changed: old failures say nothing of the new one."""
    return _step(EventKind.NEW_REVISION, _Case(state, policy, now))


def on_manual_retry(state: RetryState, policy: RetryPolicy, now: datetime) -> Outcome:
    """The user asked to try again: at once, with a new budget."""
    return _step(EventKind.MANUAL_RETRY, _Case(state, policy, now))


def on_time(state: RetryState, policy: RetryPolicy, now: datetime) -> Outcome:
    """Time passed: is the next try due?"""
    return _step(EventKind.TIME, _Case(state, policy, now))


def _step(kind: EventKind, case: _Case) -> Outcome:
    return TRANSITIONS[phase_of(case.state, case.now), kind](case)


def _nothing(case: _Case) -> Outcome:
    return Outcome(case.state, Verdict.UNCHANGED)


def _clear(case: _Case) -> Outcome:
    if case.state == RetryState():
        return _nothing(case)
    return Outcome(RetryState(), Verdict.CLEARED, WorkloadStatus.PENDING)


def _due(case: _Case) -> Outcome:
    return Outcome(case.state, Verdict.DUE)


def _quiet(case: _Case) -> Outcome:
    calm = evolve(case.state, next_at=None, infrastructure_failures=0, avoid_node_id="")
    return _nothing(case) if calm == case.state else Outcome(calm, Verdict.QUIET)


def _slow_retry(case: _Case) -> Outcome:
    failures = case.state.infrastructure_failures + 1
    state = evolve(
        case.state,
        infrastructure_failures=failures,
        next_at=case.now + case.policy.infrastructure_delay(failures, case.rng),
        avoid_node_id=_avoided(case),
    )
    return _retry_later(case, state)


def _spend_attempt(case: _Case) -> Outcome:
    policy = case.policy
    first = case.state.first_failure_at or case.now
    tried = case.state.attempts + 1
    if tried >= policy.max_attempts and case.now >= first + policy.failure_grace:
        return _give_up(case)
    state = evolve(
        case.state,
        # Within the grace the last attempt is never spent, but the delays go on growing.
        attempts=min(tried, max(policy.max_attempts - 1, 0)),
        next_at=case.now + policy.delay_before(tried, case.rng),
        first_failure_at=first,
        infrastructure_failures=0,
        avoid_node_id=_avoided(case),
    )
    return _retry_later(case, state)


def _give_up(case: _Case) -> Outcome:
    failure = _failure(case)
    attempts = min(case.state.attempts + 1, case.policy.max_attempts)
    state = RetryState(
        attempts=attempts,
        first_failure_at=case.state.first_failure_at or case.now,
        exhausted=True,
    )
    final = failure.kind is FailureKind.PERMANENT
    why = "no retry can help" if final else f"given up after {counted(attempts, 'attempt')}"
    text = capped(f"{why}: {failure.message}")
    reason = Reason(failure.code, text, _since(case, failure), retryable=False)
    return Outcome(state, Verdict.GIVEN_UP, WorkloadStatus.FAILED, reason)


def _retry_later(case: _Case, state: RetryState) -> Outcome:
    failure = _failure(case)
    reason = Reason(failure.code, failure.message, _since(case, failure), state.next_at)
    return Outcome(state, Verdict.RETRY_LATER, WorkloadStatus.RETRY_PENDING, reason)


def _failure(case: _Case) -> Failure:
    assert case.failure is not None, "this is a bug: a failure event without its failure"
    return case.failure


def _since(case: _Case, failure: Failure) -> datetime:
    """Since when this is so: a reason that stays the same keeps its beginning."""
    same = case.reason is not None and case.reason.code == failure.code
    return case.reason.since if same and case.reason else failure.at


def _avoided(case: _Case) -> NodeId:
    return case.node_id if is_node_bound(_failure(case).code) else ""


_FAILURE_EVENTS: Mapping[FailureKind, EventKind] = {
    FailureKind.INFRASTRUCTURE: EventKind.INFRASTRUCTURE_FAILURE,
    FailureKind.WORKLOAD: EventKind.WORKLOAD_FAILURE,
    FailureKind.PERMANENT: EventKind.PERMANENT_FAILURE,
}

_Transition = Callable[[_Case], Outcome]
_ROWS: Mapping[EventKind, tuple[_Transition, _Transition, _Transition, _Transition]] = {
    # event: CLEAN, WAITING, DUE, EXHAUSTED
    EventKind.INFRASTRUCTURE_FAILURE: (_slow_retry, _nothing, _slow_retry, _nothing),
    EventKind.WORKLOAD_FAILURE: (_spend_attempt, _nothing, _spend_attempt, _nothing),
    EventKind.PERMANENT_FAILURE: (_give_up, _give_up, _give_up, _nothing),
    EventKind.SETTLED: (_quiet, _quiet, _quiet, _nothing),
    EventKind.NEW_REVISION: (_clear, _clear, _clear, _clear),
    EventKind.MANUAL_RETRY: (_clear, _clear, _clear, _clear),
    EventKind.TIME: (_nothing, _nothing, _due, _nothing),
}
TRANSITIONS: Mapping[tuple[Phase, EventKind], _Transition] = {
    (phase, kind): row[column]
    for kind, row in _ROWS.items()
    for column, phase in enumerate((Phase.CLEAN, Phase.WAITING, Phase.DUE, Phase.EXHAUSTED))
}
"""The whole table; a test asserts that no pair is missing."""

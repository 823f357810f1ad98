from __future__ import annotations

from datetime import UTC, datetime, timedelta

from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from persys_core.model.workload import Failure, FailureKind, RetryState
from persys_core.retry.machine import (
    Phase,
    Verdict,
    effective,
    may_try,
    on_failure,
    on_manual_retry,
    on_new_revision,
    on_settled,
    phase_of,
)
from persys_core.retry.policy import RetryPolicy

T0 = datetime(2026, 1, 1, tzinfo=UTC)

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 8),
    failure_grace=st.timedeltas(timedelta(0), timedelta(minutes=5)),
    stable_after=st.timedeltas(timedelta(minutes=1), timedelta(minutes=20)),
    fast_attempts=st.integers(0, 3),
)
steps = st.lists(
    st.tuples(
        st.timedeltas(timedelta(0), timedelta(minutes=4)),
        st.sampled_from([*FailureKind, "settled", "unsettled", "revision", "retry"]),
    ),
    max_size=60,
)


@define
class Model:
    """Plays events against the machine and keeps its own, simpler count."""

    policy: RetryPolicy
    now: datetime = T0
    state: RetryState = field(factory=RetryState)
    settled_since: datetime | None = None
    spent: int = 0
    first: datetime | None = None

    def play(self, event: str) -> None:
        match event:
            case "settled":
                self.state = on_settled(self.state, self.policy, self.now).state
                self.settled_since = self.settled_since or self.now
            case "unsettled":
                self.settled_since = None
            case "revision":
                self.renew(on_new_revision(self.state, self.policy, self.now).state)
            case "retry":
                self.renew(on_manual_retry(self.state, self.policy, self.now).state)
            case _:
                self.fail(FailureKind(event))

    def renew(self, state: RetryState) -> None:
        assert state == RetryState()
        assert may_try(state, self.now)
        self.state, self.settled_since, self.spent, self.first = state, None, 0, None

    def fail(self, kind: FailureKind) -> None:
        before = effective(self.state, self.settled_since, self.policy, self.now)
        if before is not self.state:
            self.spent, self.first = 0, None
        phase = phase_of(before, self.now)
        failure = Failure("exited", "x", kind, self.now)
        outcome = on_failure(self.state, failure, self.policy, settled_since=self.settled_since)
        self.check(kind, phase, before, outcome.state, outcome.verdict)
        if outcome.verdict is not Verdict.UNCHANGED:
            self.state, self.settled_since = outcome.state, None

    def check(
        self,
        kind: FailureKind,
        phase: Phase,
        before: RetryState,
        after: RetryState,
        verdict: Verdict,
    ) -> None:
        if phase is Phase.EXHAUSTED:
            assert verdict is Verdict.UNCHANGED
        elif kind is FailureKind.PERMANENT:
            assert after.exhausted
        elif phase is Phase.WAITING:
            assert verdict is Verdict.UNCHANGED
        elif kind is FailureKind.INFRASTRUCTURE:
            assert (after.attempts, after.exhausted) == (before.attempts, False)
            self.check_timer(after)
        else:
            self.spent += 1
            self.first = self.first or self.now
            self.check_own_failure(after)

    def check_own_failure(self, after: RetryState) -> None:
        assert self.first is not None
        over = self.now >= self.first + self.policy.failure_grace
        assert after.exhausted == (over and self.spent_in_budget() >= self.policy.max_attempts)
        assert after.attempts <= self.policy.max_attempts
        if not after.exhausted:
            assert after.attempts == min(self.spent_in_budget(), self.policy.max_attempts - 1)
            self.check_timer(after)

    def spent_in_budget(self) -> int:
        # Failures within the grace beyond the last but one attempt were not spent.
        return min(self.spent, self.policy.max_attempts)

    def check_timer(self, after: RetryState) -> None:
        assert after.next_at is not None
        wait = after.next_at - self.now
        assert timedelta(0) <= wait <= self.policy.cap
        assert may_try(after, after.next_at)
        if wait:
            assert not may_try(after, after.next_at - timedelta(microseconds=1))


@given(policies, steps)
def test_no_retry_before_its_time_and_no_attempt_beyond_the_budget(
    policy: RetryPolicy, events: list[tuple[timedelta, str]]
) -> None:
    """Over any history: timers are kept, outages spend nothing, given up is final (rule 4)."""
    model = Model(policy)
    for passed, event in events:
        model.now += passed
        model.play(event)


@given(policies, st.lists(st.timedeltas(timedelta(0), timedelta(minutes=10)), max_size=40))
def test_a_failing_workload_is_given_up_in_the_end(
    policy: RetryPolicy, dawdling: list[timedelta]
) -> None:
    """Tried as soon as may be or later, it ends within the budget once the grace is over."""
    state, now, tries_after_grace = RetryState(), T0, 0
    for extra in [*dawdling, *[timedelta(0)] * 40]:
        if not may_try(state, now):
            break
        tries_after_grace += now > T0 + policy.failure_grace
        state = on_failure(state, Failure("x", "x", FailureKind.WORKLOAD, now), policy).state
        now = (state.next_at or now) + extra
    if now > T0 + policy.failure_grace + policy.cap * (policy.max_attempts + 1):
        assert state.exhausted
    assert tries_after_grace <= policy.max_attempts
    assert state.attempts <= policy.max_attempts

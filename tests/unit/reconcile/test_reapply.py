from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from persys_core.model.states import WorkloadType
from persys_core.model.workload import ReapplyState
from persys_core.reconcile.reapply import ReapplyPolicy, after_apply, may_apply, released

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = ReapplyPolicy()
CONTAINER, VM = WorkloadType.CONTAINER, WorkloadType.VM


@pytest.mark.parametrize(
    ("workload_type", "seconds"),
    [
        (WorkloadType.CONTAINER, [45, 90, 180, 360, 720, 900, 900]),
        (WorkloadType.COMPOSE, [45, 90, 180, 360, 720, 900, 900]),
        (WorkloadType.VM, [240, 480, 900, 900, 900, 900, 900]),
        (WorkloadType.MICROVM, [240, 480, 900, 900, 900, 900, 900]),
    ],
)
def test_waits_double_from_the_types_base(workload_type: WorkloadType, seconds: list[int]) -> None:
    """base x 2^(attempt - 1), at most 15 minutes (decisions, values: re-apply)."""
    waits = [POLICY.delay_after(attempt, workload_type) for attempt in range(1, 8)]
    assert waits == [timedelta(seconds=each) for each in seconds]


def test_the_base_is_the_longer_of_guard_and_timeout_and_never_too_short() -> None:
    """A guard lengthens a wait; nothing shortens it below 15 seconds."""
    assert ReapplyPolicy(guard=timedelta(minutes=5)).base(VM) == timedelta(minutes=5)
    assert ReapplyPolicy(guard=timedelta(0)).base(VM) == timedelta(minutes=4)
    quick = ReapplyPolicy(guard=timedelta(0), timeouts={CONTAINER: timedelta(seconds=1)})
    assert quick.base(CONTAINER) == timedelta(seconds=15)
    assert quick.base(VM) == timedelta(minutes=4)


def test_a_million_applies_do_not_overflow() -> None:
    """The wait stays at its cap however often a revision was sent."""
    assert POLICY.delay_after(10**6, CONTAINER) == timedelta(minutes=15)


def test_a_revision_that_was_sent_waits_for_its_time() -> None:
    """The same revision may go again at its time and not before; another one at once."""
    sent = after_apply(ReapplyState(), "r1", CONTAINER, POLICY, T0)
    assert sent == ReapplyState(1, T0 + timedelta(seconds=45), T0, "r1")
    assert not may_apply(sent, "r1", T0 + timedelta(seconds=44.9))
    assert may_apply(sent, "r1", T0 + timedelta(seconds=45))
    assert may_apply(sent, "r2", T0)
    assert may_apply(ReapplyState(), "r1", T0)


def test_another_revision_starts_to_count_anew() -> None:
    """The waits of an old revision do not burden a new one."""
    sent = ReapplyState()
    for _ in range(4):
        sent = after_apply(sent, "r1", CONTAINER, POLICY, T0)
    assert sent.attempts == 4
    assert after_apply(sent, "r2", CONTAINER, POLICY, T0).attempts == 1


def test_a_known_outcome_opens_the_guard_and_keeps_what_was_sent() -> None:
    """When and what was sent last stays known, for the missing grace."""
    sent = after_apply(ReapplyState(), "r1", CONTAINER, POLICY, T0)
    free = released(sent)
    assert free == ReapplyState(0, None, T0, "r1")
    assert may_apply(free, "r1", T0)
    assert released(free) is free

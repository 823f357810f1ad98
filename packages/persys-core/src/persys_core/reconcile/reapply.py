"""When a revision that was sent may be sent again, while nothing is known of what became of it.

Decided here: the guard between two applies of one revision (decisions, values: re-apply). Not
decided here: retries after a known failure; those have their own times (``retry.machine``), so
a failure that was counted closes the guard (``released``). Pure arithmetic::

    apply                      1      2      3      4       5       6 …
    wait after it, container   45 s   90 s   3 m    6 m     12 m    15 m …
    wait after it, vm          4 m    8 m    15 m   15 m    15 m    15 m …
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from attrs import evolve, field, frozen

from persys_core.model.ids import RevisionId
from persys_core.model.states import WorkloadType
from persys_core.model.workload import ReapplyState

__all__ = ["APPLY_TIMEOUTS", "ReapplyPolicy", "after_apply", "may_apply", "released"]

APPLY_TIMEOUTS: Mapping[WorkloadType, timedelta] = MappingProxyType(
    {
        WorkloadType.CONTAINER: timedelta(seconds=45),
        WorkloadType.COMPOSE: timedelta(seconds=45),
        WorkloadType.VM: timedelta(seconds=240),
        WorkloadType.MICROVM: timedelta(seconds=240),
    }
)
"""How long an agent may take to bring up each type."""


@frozen
class ReapplyPolicy:
    """``guard``: SCHEDULER_REAPPLY_GUARD. ``timeouts``: per type; a type not named has 45 s."""

    guard: timedelta = timedelta(seconds=45)
    floor: timedelta = timedelta(seconds=15)
    cap: timedelta = timedelta(minutes=15)
    timeouts: Mapping[WorkloadType, timedelta] = field(default=APPLY_TIMEOUTS)

    def base(self, workload_type: WorkloadType) -> timedelta:
        """The wait after the first apply: the longer of timeout and guard, and never too short."""
        timeout = self.timeouts.get(workload_type, APPLY_TIMEOUTS[workload_type])
        return max(timeout, self.guard, self.floor)

    def delay_after(self, attempt: int, workload_type: WorkloadType) -> timedelta:
        """The wait after apply number ``attempt`` (from 1) of one revision; at most ``cap``."""
        delay = self.base(workload_type)
        for _ in range(attempt - 1):
            if delay >= self.cap:
                break
            delay *= 2
        return min(delay, self.cap)


def may_apply(state: ReapplyState, revision_id: RevisionId, now: datetime) -> bool:
    """Whether ``revision_id`` may be sent at ``now``; one that was not sent last always may."""
    if state.last_apply_revision != revision_id:
        return True
    return state.next_at is None or now >= state.next_at


def after_apply(
    state: ReapplyState,
    revision_id: RevisionId,
    workload_type: WorkloadType,
    policy: ReapplyPolicy,
    now: datetime,
) -> ReapplyState:
    """The state once ``revision_id`` is sent at ``now``; another revision starts to count anew."""
    before = state.attempts if state.last_apply_revision == revision_id else 0
    attempts = before + 1
    return ReapplyState(
        attempts=attempts,
        next_at=now + policy.delay_after(attempts, workload_type),
        last_apply_at=now,
        last_apply_revision=revision_id,
    )


def released(state: ReapplyState, *, counts_on: bool = False) -> ReapplyState:
    """The state once the outcome of the last apply is known: settled, failed, or asked anew.

    When and what was sent last stays known, since the missing grace counts from it. A state that
    has nothing to release is given back as it is. ``counts_on``: it runs, and its agent did not
    take in what it was told of that; how often it was told then says when it is told again.
    """
    attempts = state.attempts if counts_on else 0
    if state.attempts == attempts and state.next_at is None:
        return state
    return evolve(state, attempts=attempts, next_at=None)

"""How long a workload waits before the agent repairs it again: longer each time, never together.

A workload that has been left in peace for ``_CALM`` begins anew.
"""

from __future__ import annotations

import random
from datetime import timedelta

from attrs import frozen

from persys_core.model.ids import WorkloadId

__all__ = ["Backoff"]

_FIRST = timedelta(seconds=5)
_LONGEST = timedelta(minutes=5)
_CALM = timedelta(minutes=10)


@frozen
class _Repaired:
    attempts: int
    at: float
    next_at: float


class Backoff:
    """Times are those of a monotonic clock, in seconds."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._repaired: dict[WorkloadId, _Repaired] = {}

    def is_due(self, workload_id: WorkloadId, now: float) -> bool:
        """Whether it may be repaired now."""
        last = self._repaired.get(workload_id)
        return last is None or now >= last.next_at

    def attempt(self, workload_id: WorkloadId, now: float) -> None:
        """It is being repaired; the next time is further away."""
        last = self._repaired.get(workload_id)
        attempts = 0
        if last is not None and now - last.next_at < _CALM.total_seconds():
            attempts = last.attempts + 1
        wait = min(_FIRST * 2 ** min(attempts, 10), _LONGEST).total_seconds()
        wait *= 0.5 + self._rng.random()
        self._repaired[workload_id] = _Repaired(attempts, now, now + wait)

    def keep_only(self, workload_ids: frozenset[WorkloadId]) -> None:
        """Forget what is not there any more."""
        self._repaired = {
            name: last for name, last in self._repaired.items() if name in workload_ids
        }

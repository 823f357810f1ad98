"""EventPublisher: tells what happened, and tells what repeats itself only now and then.

A reason that comes back at every try would fill the bounded log (field report V02, defect J11):
for the types that repeat, one event per object and reason code and minute goes out, with the
count of those that were held back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from persys_core.model.event import Event, EventType, capped
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.ports.clock import Clock
from persys_core.ports.events import EventLog

__all__ = ["EventPublisher"]

WINDOW = timedelta(seconds=60)
_REPEATING = frozenset(
    (
        EventType.WORKLOAD_UNSCHEDULABLE,
        EventType.RETRY_TRIGGERED,
        EventType.RESCHEDULE_SKIPPED,
        EventType.DRIFT_DETECTED,
        EventType.NODE_OVERCOMMITTED,
        EventType.NODE_ID_TAKEN,
    )
)
_REMEMBERED = 10_000
_REMEMBERED_AT_MOST = 200_000
"""While all of them are younger than the window: a storm among more objects is no way around it."""

_Key = tuple[EventType, WorkloadId, NodeId, str]


class EventPublisher:
    """Appends to an event log; itself an append-only event log for its users."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._recent: dict[_Key, tuple[datetime, int]] = {}

    def publish(
        self,
        kind: EventType,
        *,
        workload_id: WorkloadId = "",
        node_id: NodeId = "",
        reason: str = "",
        code: str = "",
        details: Mapping[str, str] | None = None,
    ) -> None:
        """Tell of ``kind``; ``code`` is the stable reason by which repetitions are known."""
        now = self._clock.now()
        told = dict(details or {})
        if code:
            told["code"] = code
        if kind in _REPEATING:
            held_back = self._held_back((kind, workload_id, node_id, code), now)
            if held_back is None:
                return
            if held_back:
                told["count"] = str(held_back + 1)
        self._log.append(Event(kind, now, workload_id, node_id, capped(reason), told))

    def _held_back(self, key: _Key, now: datetime) -> int | None:
        """How many equal ones were held back before this one; ``None``: hold this back too."""
        known = self._recent.get(key)
        if known is not None and now - known[0] < WINDOW:
            self._recent[key] = (known[0], known[1] + 1)
            return None
        self._recent.pop(key, None)
        self._recent[key] = (now, 0)
        self._forget(now)
        return known[1] if known else 0

    def _forget(self, now: datetime) -> None:
        """Keep a bounded number; the oldest, which stand first, go first."""
        while len(self._recent) > _REMEMBERED:
            oldest = next(iter(self._recent))
            is_over = now - self._recent[oldest][0] >= WINDOW
            if not is_over and len(self._recent) <= _REMEMBERED_AT_MOST:
                return
            del self._recent[oldest]

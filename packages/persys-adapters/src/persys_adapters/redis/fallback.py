"""Where reconcile outcomes go that Redis cannot take, and how few of them.

Decided here: what a changed outcome is (another action, or another success), so that an outage
never moves the flood to the state store (field report K04).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeAlias

from attrs import define, field

from persys_core.model.ids import WorkloadId

__all__ = ["Fallback", "Outcomes", "ReconciliationFallback"]

_OUTCOMES_AT_MOST = 100_000

ReconciliationFallback: TypeAlias = Callable[[WorkloadId, Mapping[str, str]], None]
"""Takes the outcome of a workload that Redis cannot take; never waits and never raises.

It is called at most once per workload and changed outcome (action and success)."""


class Outcomes:
    """The last outcome per workload, to know a changed one; the oldest go first."""

    def __init__(self) -> None:
        self._last: OrderedDict[WorkloadId, tuple[str, str]] = OrderedDict()

    def is_new(self, workload_id: WorkloadId, facts: Mapping[str, str]) -> bool:
        """Whether this differs from the last; it is the last from now on."""
        outcome = (facts.get("action", ""), facts.get("success", ""))
        known = self._last.pop(workload_id, None)
        self._last[workload_id] = outcome
        if len(self._last) > _OUTCOMES_AT_MOST:
            self._last.popitem(last=False)
        return known != outcome

    def forget(self, workload_id: WorkloadId) -> None:
        self._last.pop(workload_id, None)


@define(eq=False)
class Fallback:
    """Tells outcomes that Redis cannot take, each once."""

    _tell: ReconciliationFallback | None
    _told: Outcomes = field(factory=Outcomes)

    def take(self, workload_id: WorkloadId, facts: Mapping[str, str]) -> None:
        if self._tell is not None and self._told.is_new(workload_id, facts):
            self._tell(workload_id, facts)

    def forget(self, workload_id: WorkloadId) -> None:
        self._told.forget(workload_id)

"""``Counting``: what happens in a node, told to its metrics.

Decided here: which event counts as what, and that gauges are set when they are asked for.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from persys_agent.engine.works import Works
from persys_agent.metrics.families import AgentMetrics
from persys_agent.reporting.detector import Detector
from persys_agent.reporting.usage import UsageCollector
from persys_agent.state.records import Task, TaskKind, TaskState
from persys_agent.state.store import AgentState
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState as Observed

__all__ = ["Counting"]


class Counting:
    """Counters of one node; ``refresh`` sets the gauges."""

    def __init__(self, state: AgentState) -> None:
        self.metrics = AgentMetrics()
        self._state = state

    def task_ended(self, task: Task) -> None:
        """A task was carried out."""
        took, failed = _took(task), task.state is TaskState.FAILED
        self.metrics.task(task.kind, took, failed=failed)
        row = self._state.get(task.workload_id)
        if task.kind is TaskKind.DELETE:
            self.metrics.deleted(took, failed=failed)
        else:
            is_new = row is not None and row.created_at >= task.created_at
            self.metrics.applied(took, created=is_new and not failed, failed=failed)
        if failed:
            self.operation_failed(task.workload_id)

    def operation_failed(self, workload_id: WorkloadId) -> None:
        """What the last operation on a workload left as its condition is counted."""
        row = self._state.get(workload_id)
        condition = row.condition if row is not None else None
        self.metrics.error(condition.code if condition is not None else "UNKNOWN_ERROR")

    def looked(self, took: timedelta) -> None:
        """The local loop looked at everything."""
        self.metrics.reconciled(took)

    def refresh(self, works: Works, detector: Detector, collector: UsageCollector) -> None:
        """Set every gauge to what is so now."""
        self.metrics.workloads(
            (row.sight.state if row.sight else Observed.UNKNOWN, row.type) for row in works.state
        )
        self.metrics.orphans(Counter(kind for kind, _ in works.board.orphans))
        self.metrics.queued(works.queue.depth)
        found = detector.current.runtimes
        self.metrics.runtimes({kind: each.is_available for kind, each in found.items()})
        self.metrics.host(collector.host.use)


def _took(task: Task) -> timedelta:
    if task.started_at is None or task.ended_at is None:
        return timedelta(0)
    return task.ended_at - task.started_at

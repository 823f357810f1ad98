"""What agents said last, per workload, in this replica's memory. Hints only trigger questions.

Never durable: after a restart the nodes are simply listed again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from attrs import frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.observation import AgentReport

__all__ = ["Observation", "Observations"]


@frozen
class Observation:
    """One workload as its node saw it at ``at`` or later; ``report`` ``None``: the node lacks it.

    ``by_query``: the answer to a question about just this workload, which alone shows tasks. It was
    asked at ``at``, and the answer came at ``heard_at``, which may be much later.
    """

    node_id: NodeId
    report: AgentReport | None
    at: datetime
    by_query: bool = False
    heard_at: datetime | None = None

    @property
    def heard(self) -> datetime:
        """When it came to be known here."""
        return self.heard_at or self.at


class Observations:
    """The newest observation per workload and node pair that is of interest."""

    def __init__(self, on_answer: Callable[[NodeId, AgentReport], None]) -> None:
        """``on_answer`` hears of every answer to a question about one workload."""
        self._by_workload: dict[WorkloadId, Observation] = {}
        self._on_answer = on_answer

    def record(self, workload_id: WorkloadId, observation: Observation) -> None:
        """Keep ``observation`` unless a newer one is known.

        What came in while a question was waiting for its answer is older than that answer: else an
        agent that answers slowly, and beats meanwhile, would never be taken at its word.
        """
        if observation.by_query and observation.report is not None:
            self._on_answer(observation.node_id, observation.report)
        known = self._by_workload.get(workload_id)
        if (
            known is None
            or known.heard <= observation.heard
            or known.node_id != observation.node_id
        ):
            self._by_workload[workload_id] = observation

    def of(self, workload_id: WorkloadId, node_id: NodeId, since: datetime) -> Observation | None:
        """What ``node_id`` said of the workload at ``since`` or later."""
        known = self._by_workload.get(workload_id)
        if known is None or known.node_id != node_id or known.at < since:
            return None
        return known

    def forget(self, workload_id: WorkloadId) -> None:
        """The workload is gone."""
        self._by_workload.pop(workload_id, None)

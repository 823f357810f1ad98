"""What full lists remarked of the workloads of each node, where heartbeats carry no remarks.

Decided here: whose silence says that a workload is well again. Some agents' heartbeats have states
and no messages: each of them would take away what each list gives. So what the last list remarked
goes on counting beside them, until a list says otherwise or none came for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from attrs import evolve, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.observation import AgentReport
from persys_core.model.remarks import Remark, remark_of

__all__ = ["ListedRemarks"]

_COUNTS_FOR = timedelta(minutes=5)
"""Longer than any usual interval between lists; after it, heartbeats are all there is."""


@frozen
class _Listed:
    at: datetime
    reports: Mapping[WorkloadId, AgentReport]


class ListedRemarks:
    """In this replica's memory: after a restart the nodes are listed again."""

    def __init__(self) -> None:
        self._by_node: dict[NodeId, _Listed] = {}

    def listed(self, node_id: NodeId, reports: Iterable[AgentReport], at: datetime) -> None:
        """Keep what a full list remarks, in place of what the one before did."""
        remarked = {each.workload_id: each for each in reports if _has_remark(each)}
        if remarked:
            self._by_node[node_id] = _Listed(at, remarked)
        else:
            self._by_node.pop(node_id, None)

    def completed(self, node_id: NodeId, beat: AgentReport, at: datetime) -> AgentReport:
        """``beat`` with what was listed of the workload in that state, where it remarks nothing."""
        listed = self._by_node.get(node_id)
        if listed is None or at - listed.at > _COUNTS_FOR or _has_remark(beat):
            return beat
        known = listed.reports.get(beat.workload_id)
        if known is None or known.state is not beat.state:
            return beat
        return evolve(beat, message=known.message)


def _has_remark(report: AgentReport) -> bool:
    return remark_of(report.message) is not Remark.NONE

"""Listing: what a node says it runs, compared as a set with what is assigned to it (§3.4).

Decided here: which workloads need a look. A workload that runs as its record says costs one
dictionary look-up; everything else is nudged, and the reconciler decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from persys_core.control.drift_notes import DriftNotes
from persys_core.control.listed_remarks import ListedRemarks
from persys_core.control.observations import Observation, Observations
from persys_core.control.orphan_copies import OrphanCopies
from persys_core.control.view import ClusterView
from persys_core.control.work import Work, tombstone_work, workload_work
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.remarks import is_worth_a_write
from persys_core.model.spec import secret_values
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import StatusRecord, Workload
from persys_core.reconcile.observe import is_unrecorded, will_be_started
from persys_core.retry.texts import presentable

__all__ = ["Listing"]

_AS_RECORDED: dict[WorkloadStatus, frozenset[AgentState]] = {
    WorkloadStatus.RUNNING: frozenset((AgentState.RUNNING,)),
    WorkloadStatus.STOPPED: frozenset((AgentState.STOPPED,)),
    WorkloadStatus.COMPLETED: frozenset((AgentState.STOPPED,)),
    WorkloadStatus.FAILED: frozenset((AgentState.STOPPED, AgentState.FAILED, AgentState.UNKNOWN)),
}


class Listing:
    """Takes full listings and heartbeats of nodes.

    ``noted``: told of what each full listing showed that is not as recorded. ``copies``: told of
    what is not as recorded in any listing.
    """

    def __init__(
        self,
        view: ClusterView,
        observations: Observations,
        nudge: Callable[[Work], None],
        noted: DriftNotes,
        copies: OrphanCopies,
    ) -> None:
        self._view = view
        self._observations = observations
        self._nudge = nudge
        self._noted = noted
        self._copies = copies
        self._remarks = ListedRemarks()

    def take(
        self,
        node_id: NodeId,
        reports: Sequence[AgentReport],
        at: datetime,
        *,
        full: bool,
        by_beat: bool = False,
    ) -> None:
        """Compare ``reports`` (asked for at ``at``) with the records.

        ``full``: a workload that is not reported is missing on the node, and what is neither
        assigned nor owed there is noted; what to do about it is drift's business. ``by_beat``:
        they came with a heartbeat, whose messages may lack what lists remark.
        """
        unsettled = []
        reported = set()
        if not by_beat:
            self._remarks.listed(node_id, reports, at)
        for said in reports:
            report = self._remarks.completed(node_id, said, at) if by_beat else said
            reported.add(report.workload_id)
            if self._take_report(node_id, report, at):
                unsettled.append(report)
        for workload_id in sorted(self._copies.take(node_id, unsettled, at, full=full)):
            if self._view.workload(workload_id) and not self._view.assignment(workload_id):
                self._nudge(workload_work(workload_id))
        if full:
            absent = self._take_absent(node_id, reported, at)
            self._noted.take(node_id, unsettled, absent, at)

    def _take_report(self, node_id: NodeId, report: AgentReport, at: datetime) -> bool:
        """Whether it is not as recorded."""
        workload_id = report.workload_id
        assignment = self._view.assignment(workload_id)
        if assignment is None or assignment.value.node_id != node_id:
            if self._view.tombstone(node_id, workload_id) is not None:
                self._nudge(tombstone_work(node_id, workload_id))
            return True
        if self._is_settled(report, at):
            return False
        if report.revision_id:
            # Without a revision it is a hint: it only makes the reconciler ask (decisions §2.10).
            self._observations.record(workload_id, Observation(node_id, report, at))
        self._nudge(workload_work(workload_id))
        return True

    def _is_settled(self, report: AgentReport, at: datetime) -> bool:
        status = self._view.status(report.workload_id)
        workload = self._view.workload(report.workload_id)
        if status is None or workload is None or will_be_started(report, workload.value):
            return False
        record: StatusRecord = status.value
        ended = record.status in (WorkloadStatus.COMPLETED, WorkloadStatus.FAILED)
        if report.state is AgentState.RUNNING and _has_news(record, workload.value, report, at):
            return False
        return (
            record.intent is None
            and (ended or record.reason is None)
            and report.state in _AS_RECORDED.get(record.status, ())
            and report.revision_id in (workload.value.revision_id, "")
            and not is_unrecorded(report)
        )

    def _take_absent(
        self, node_id: NodeId, reported: set[WorkloadId], at: datetime
    ) -> list[WorkloadId]:
        """What should be there and is not reported."""
        absent = []
        for workload_id in sorted(self._view.assigned_to(node_id) - reported):
            assignment = self._view.assignment(workload_id)
            if assignment is None or assignment.value.created_at > at:
                continue
            self._observations.record(workload_id, Observation(node_id, None, at))
            if not self._rests(workload_id):
                absent.append(workload_id)
                self._nudge(workload_work(workload_id))
        for workload_id in sorted(self._view.buried_at(node_id)):
            self._nudge(tombstone_work(node_id, workload_id))
        return absent

    def _rests(self, workload_id: WorkloadId) -> bool:
        """Whether nothing is expected to be there: it was never sent, or it ended."""
        status = self._view.status(workload_id)
        return (
            status is not None
            and status.value.intent is None
            and status.value.status
            in (WorkloadStatus.STOPPED, WorkloadStatus.COMPLETED, WorkloadStatus.FAILED)
        )


def _has_news(record: StatusRecord, workload: Workload, report: AgentReport, at: datetime) -> bool:
    """Whether the agent's remark has to be written: as it would be stored, since a secret in it or
    its length would make it look new for ever. Cleaning is slow, and hardly ever needed."""
    known = record.observed
    if not is_worth_a_write(known.message, known.at, report.message, at):
        return False
    stored = presentable(report.message, secret_values(workload.spec))
    return is_worth_a_write(known.message, known.at, stored, at)

"""DriftNotes: what the newest full listing of each node showed that is not as recorded.

Decided here: what is kept of a listing, so that drift costs no listing of its own. Each
difference is judged at the moment of its listing, before the reconciler acts upon it, since
afterwards everything is on its way. Kept in this replica's memory, as much as there are
differences; nothing of what is as recorded is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from attrs import evolve, frozen

from persys_core.control.view import ClusterView
from persys_core.drift.classify import Finding, Recorded, Sighted, classify, was_told_to_stop
from persys_core.model.drift import DriftType
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.observation import AgentReport, AgentState

__all__ = ["DriftNotes", "Look"]

IN_A_ROW_WITHIN = timedelta(minutes=2)
"""A listing that comes later than this after the one before begins a new row."""

_About = tuple[WorkloadId, DriftType]


@frozen
class _Stranger:
    """A workload that is reported where it is not assigned."""

    listings: int
    created_at: datetime | None


@frozen
class Look:
    """What one full listing, asked for at ``at``, showed.

    ``unsettled``: all that is not as recorded, be it drift or on its way. ``findings``: the drift.
    """

    at: datetime
    unsettled: frozenset[WorkloadId]
    findings: tuple[Finding, ...]


class DriftNotes:
    """The notes of one replica."""

    def __init__(self, view: ClusterView, grace: timedelta) -> None:
        self._view = view
        self._grace = grace
        self._looks: dict[NodeId, Look] = {}
        self._strangers: dict[NodeId, Mapping[WorkloadId, _Stranger]] = {}
        self._noticed: dict[NodeId, dict[_About, Finding]] = {}

    def take(
        self,
        node_id: NodeId,
        unsettled: Sequence[AgentReport],
        absent: Iterable[WorkloadId],
        at: datetime,
    ) -> None:
        """Note a full listing: the reports that are not as recorded, and what it lacks."""
        strangers = self._count(node_id, unsettled, at)
        found: list[Finding] = []
        for report in unsettled:
            seen = strangers.get(report.workload_id, _Stranger(0, None))
            sighted = Sighted(
                node_id, report.workload_id, report, at, seen.listings, seen.created_at
            )
            found += self._classify(sighted)
        gone = frozenset(absent)
        for workload_id in sorted(gone):
            found += self._classify(Sighted(node_id, workload_id, None, at))
        self._strangers[node_id] = strangers
        names = gone.union(report.workload_id for report in unsettled)
        self._looks[node_id] = Look(at, names, tuple(found))
        self._notice(node_id, found)

    def look(self, node_id: NodeId) -> Look | None:
        """The newest full listing of the node that this replica took."""
        return self._looks.get(node_id)

    def listed_since(self, node_id: NodeId, since: datetime) -> Look | None:
        """The newest full listing, if it was made at ``since`` or later."""
        look = self._looks.get(node_id)
        return look if look is not None and look.at >= since else None

    def ripe(self, node_id: NodeId) -> Sequence[Finding]:
        """What was found since this was asked last, the newest word of each.

        What one look could not tell for sure is kept back until listings showed it for the grace,
        and forgotten when one does not show it.
        """
        noticed = self._noticed.pop(node_id, {})
        look = self._looks.get(node_id)
        unripe = {
            about: each
            for about, each in noticed.items()
            if not each.is_sure and (look is None or look.at < each.at + self._grace)
        }
        if unripe:
            self._noticed[node_id] = unripe
        return [each for about, each in noticed.items() if about not in unripe]

    def confirm(self, node_id: NodeId, report: AgentReport) -> None:
        """An agent's answer about one workload: does it make sure what a heartbeat left open?"""
        about = (report.workload_id, DriftType.STATE_MISMATCH)
        noticed = self._noticed.get(node_id, {})
        known = noticed.get(about)
        if known is not None and report.state is AgentState.STOPPED and was_told_to_stop(report):
            noticed[about] = evolve(known, is_sure=True)

    def clear(self) -> None:
        """Begin anew: what was noted while another replica led is not to be told by this one."""
        self._looks.clear()
        self._strangers.clear()
        self._noticed.clear()

    def forget(self, node_id: NodeId) -> None:
        """The node left the cluster."""
        self._looks.pop(node_id, None)
        self._strangers.pop(node_id, None)
        self._noticed.pop(node_id, None)

    def _classify(self, sighted: Sighted) -> tuple[Finding, ...]:
        workload = self._view.workload(sighted.workload_id)
        status = self._view.status(sighted.workload_id)
        assignment = self._view.assignment(sighted.workload_id)
        recorded = Recorded(
            workload.value if workload else None,
            status.value if status else None,
            assignment.value if assignment else None,
            owed=self._view.tombstone(sighted.node_id, sighted.workload_id) is not None,
        )
        return classify(recorded, sighted, self._grace)

    def _count(
        self, node_id: NodeId, unsettled: Iterable[AgentReport], at: datetime
    ) -> Mapping[WorkloadId, _Stranger]:
        last = self._looks.get(node_id)
        in_a_row = last is not None and last.at < at <= last.at + IN_A_ROW_WITHIN
        before = self._strangers.get(node_id, {}) if in_a_row else {}
        return {
            report.workload_id: self._counted(before.get(report.workload_id), report)
            for report in unsettled
            if self._is_stranger(node_id, report.workload_id)
        }

    def _counted(self, before: _Stranger | None, report: AgentReport) -> _Stranger:
        """Heartbeats do not say since when the agent has it; then an earlier word holds."""
        if before is None:
            return _Stranger(1, report.created_at)
        return _Stranger(before.listings + 1, report.created_at or before.created_at)

    def _is_stranger(self, node_id: NodeId, workload_id: WorkloadId) -> bool:
        """An owed delete is none, and begins a new row when it ends."""
        assignment = self._view.assignment(workload_id)
        here = assignment is not None and assignment.value.node_id == node_id
        return not here and self._view.tombstone(node_id, workload_id) is None

    def _notice(self, node_id: NodeId, found: Iterable[Finding]) -> None:
        before = self._noticed.get(node_id, {})
        noticed = {about: each for about, each in before.items() if each.is_sure}
        for finding in found:
            about = (finding.workload_id, finding.type)
            known = before.get(about)
            noticed[about] = _joined(known, finding) if known else finding
        self._noticed[node_id] = noticed
        if not noticed:
            del self._noticed[node_id]


def _joined(known: Finding, newer: Finding) -> Finding:
    """The newer word, since when it was first found, and as sure as it ever was."""
    return evolve(newer, at=known.at, is_sure=known.is_sure or newer.is_sure)

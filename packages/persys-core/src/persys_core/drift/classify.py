"""What a full listing of a node shows that the records do not explain.

Decided here: what is drift, by two ordered tables. ``EXCUSES`` are the differences that are no
drift, since something is on its way (defect C17); what is left is compared for each type by
itself, so that a wrong state hides no wrong revision (defect J13). A failure, an end and a start
are no drift either: they are what the reconciler is there for. Not decided here: what is done
about drift. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

from attrs import frozen

from persys_core.model.drift import DriftType
from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.states import DesiredState, ObservedState, WorkloadStatus
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.reconcile.observe import (
    observe_report,
    says_gone,
    says_gone_and_stopped,
)

__all__ = [
    "COMPARISONS",
    "EXCUSES",
    "Comparison",
    "Excuse",
    "Finding",
    "Orphan",
    "OrphanKind",
    "Recorded",
    "Sighted",
    "classify",
    "excuse_of",
    "orphan_kind",
    "was_told_to_stop",
]

ORPHAN_AFTER = 2
"""Full listings in a row before an orphan counts: one may have been under way when a workload was
confirmed gone."""
MISSING = "Missing"


class OrphanKind(StrEnum):
    """What the records say of a workload that is reported where it is not assigned."""

    UNKNOWN = "unknown"
    """Nothing: there is no such workload."""
    RESIDUAL = "residual"
    """Its user wants it gone."""
    STRAY = "stray"
    """It exists, and has no node."""
    DUPLICATE = "duplicate"
    """It is assigned to another node."""


@frozen
class Recorded:
    """The records of one workload; ``owed``: a tombstone says that this node must delete it."""

    workload: Workload | None
    status: StatusRecord | None
    assignment: Assignment | None
    owed: bool = False


@frozen
class Sighted:
    """What a node's full listing, asked for at ``at``, says of one workload.

    ``report`` is ``None`` where it is not listed. ``listings``: how many full listings in a row
    showed it where it is not assigned; ``created_at``: since when the agent has it, if it said so.
    """

    node_id: NodeId
    workload_id: WorkloadId
    report: AgentReport | None
    at: datetime
    listings: int = 1
    created_at: datetime | None = None


@frozen
class Orphan:
    """What decides about an orphan."""

    kind: OrphanKind
    listings: int
    created_at: datetime | None
    revision_id: RevisionId


@frozen
class Finding:
    """One drift. The two statuses hold revisions where those differ.

    ``is_sure``: one look is enough; else it is drift only if it lasts although nothing changes.
    """

    node_id: NodeId
    workload_id: WorkloadId
    type: DriftType
    at: datetime
    scheduler_status: str
    agent_status: str
    orphan: Orphan | None = None
    is_sure: bool = True


@frozen
class _Case:
    recorded: Recorded
    sighted: Sighted
    grace: timedelta

    @property
    def is_here(self) -> bool:
        assignment = self.recorded.assignment
        return assignment is not None and assignment.node_id == self.sighted.node_id

    @property
    def status(self) -> WorkloadStatus | None:
        return self.recorded.status.status if self.recorded.status else None

    @property
    def desired(self) -> DesiredState | None:
        return self.recorded.workload.desired_state if self.recorded.workload else None

    def changed_at(self) -> datetime:
        """When anything of the records last changed, or something was last sent."""
        workload, status = self.recorded.workload, self.recorded.status
        assignment = self.recorded.assignment
        instants = (
            workload.updated_at if workload else None,
            status.updated_at if status else None,
            status.reapply.last_apply_at if status else None,
            assignment.created_at if assignment else None,
        )
        return max(at for at in instants if at is not None)


@frozen
class Excuse:
    """Why a difference is no drift; first match wins. ``condition`` is ``when`` for people."""

    name: str
    when: Callable[[_Case], bool]
    condition: str
    why: str


@frozen
class Comparison:
    """One type of drift, and when there is one; ``condition`` is ``when`` for people."""

    type: DriftType
    when: Callable[[_Case], bool]
    condition: str


_SETTLED_AS: dict[DesiredState | None, tuple[WorkloadStatus, ...]] = {
    DesiredState.RUNNING: (
        WorkloadStatus.RUNNING,
        WorkloadStatus.COMPLETED,
        WorkloadStatus.FAILED,
    ),
    DesiredState.STOPPED: (WorkloadStatus.STOPPED,),
}


def _has_lost_its_old_copy(case: _Case) -> bool:
    """Whether its node has no room for the new revision, so that the old one goes on there, and
    the agent does not know of that one any more."""
    status, assignment = case.recorded.status, case.recorded.assignment
    if status is None or assignment is None or not status.waits_to_grow:
        return False
    sent_at = status.reapply.last_apply_at
    was_sent = sent_at is not None and sent_at >= assignment.created_at
    return was_sent and case.is_here and case.sighted.report is None


EXCUSES: tuple[Excuse, ...] = (
    Excuse(
        "gone",
        lambda c: not c.is_here and bool(c.sighted.report and says_gone(c.sighted.report)),
        "it is not assigned here, and the agent says that it is gone",
        "the agent only keeps a note of a delete of what it did not have",
    ),
    Excuse(
        "owed",
        lambda c: c.recorded.owed and not c.is_here,
        "it is not assigned here, and a tombstone stands here",
        "its delete is owed there: a move, or a lost node that came back",
    ),
    Excuse(
        "sighted-once",
        lambda c: not c.is_here and c.sighted.listings < ORPHAN_AFTER,
        f"it is not assigned here, and fewer than {ORPHAN_AFTER} listings in a row showed it",
        "the listing may be older than what the records say",
    ),
    Excuse(
        "orphan-is-absent",
        lambda c: not c.is_here and c.sighted.report is None,
        "it is not assigned here, and not listed",
        "it is neither assigned nor there",
    ),
    Excuse(
        "no-record",
        lambda c: c.is_here and (c.recorded.workload is None or c.recorded.status is None),
        "it is assigned here, and its spec or status is not recorded",
        "its records are being written or removed",
    ),
    Excuse(
        "being-deleted",
        lambda c: c.is_here and c.desired is DesiredState.DELETED,
        "it is assigned here, and desired Deleted",
        "the reconciler is removing it",
    ),
    Excuse(
        "intent",
        lambda c: c.is_here and c.recorded.status is not None and bool(c.recorded.status.intent),
        "it is assigned here, and an intent stands",
        "a call to the agent is open",
    ),
    Excuse(
        "on-its-way",
        lambda c: (
            c.is_here and c.status not in _SETTLED_AS[c.desired] and not _has_lost_its_old_copy(c)
        ),
        "it is assigned here, and its status is none in which its desired state is met; but not"
        " where it waits for room to be updated and what was sent is not listed any more",
        "the record itself says that the wish is not met yet",
    ),
    Excuse(
        "lately",
        lambda c: c.is_here and c.changed_at() + c.grace > c.sighted.at,
        "it is assigned here, and a record changed or a call went out within the missing grace",
        "the listing may be older than the last change (missing grace)",
    ),
)


def _seen_state(case: _Case) -> ObservedState:
    report, workload = case.sighted.report, case.recorded.workload
    if report is None or workload is None:
        return ObservedState.MISSING
    return observe_report(report, workload, case.sighted.at).state


def _is_missing(case: _Case) -> bool:
    """An agent that knows of another revision has it, or is making it."""
    if _has_lost_its_old_copy(case):
        return True
    runs = case.status is WorkloadStatus.RUNNING
    return runs and _seen_state(case) is ObservedState.MISSING and not _has_other_revision(case)


def _has_other_state(case: _Case) -> bool:
    if case.status is WorkloadStatus.RUNNING:
        return _seen_state(case) is ObservedState.STOPPED
    report = case.sighted.report
    return report is not None and report.state is AgentState.RUNNING


def _is_sure(case: _Case, kind: DriftType) -> bool:
    """Whether one look tells it from an end, a crash or a restart of the workload's own.

    Only what the agent itself was told by somebody else does; a stop below the agent looks just
    like an end.
    """
    if kind is not DriftType.STATE_MISMATCH or case.status is WorkloadStatus.STOPPED:
        return True
    report = case.sighted.report
    return case.status is WorkloadStatus.RUNNING and report is not None and was_told_to_stop(report)


def was_told_to_stop(report: AgentReport) -> bool:
    """Whether its agent means it to be stopped. Heartbeats do not say."""
    return report.desired_state is DesiredState.STOPPED


def _has_other_revision(case: _Case) -> bool:
    report, workload = case.sighted.report, case.recorded.workload
    if report is None or workload is None or case.status is not WorkloadStatus.RUNNING:
        return False
    return report.revision_id not in ("", workload.revision_id)


COMPARISONS: tuple[Comparison, ...] = (
    Comparison(
        DriftType.ORPHAN_ON_AGENT, lambda c: not c.is_here, "it is listed, and not assigned here"
    ),
    Comparison(
        DriftType.MISSING_ON_AGENT,
        lambda c: c.is_here and _is_missing(c),
        "it is recorded as Running; the agent does not have it, nor another revision of it",
    ),
    Comparison(
        DriftType.STATE_MISMATCH,
        lambda c: c.is_here and _has_other_state(c),
        "it is recorded as Running, and seen stopped; or at rest, and seen running",
    ),
    Comparison(
        DriftType.REVISION_MISMATCH,
        lambda c: c.is_here and _has_other_revision(c),
        "it is recorded as Running, and the agent names another revision",
    ),
)


def excuse_of(recorded: Recorded, sighted: Sighted, grace: timedelta) -> Excuse | None:
    """Why a difference between the two is no drift; ``None`` where nothing excuses it."""
    case = _Case(recorded, sighted, grace)
    return next((excuse for excuse in EXCUSES if excuse.when(case)), None)


def classify(recorded: Recorded, sighted: Sighted, grace: timedelta) -> tuple[Finding, ...]:
    """The drifts of one workload on one node: at most one of each type.

    ``grace``: what changed or was sent within it before the listing is still on its way.
    """
    if excuse_of(recorded, sighted, grace) is not None:
        return ()
    case = _Case(recorded, sighted, grace)
    return tuple(_finding(case, row.type) for row in COMPARISONS if row.when(case))


def _finding(case: _Case, kind: DriftType) -> Finding:
    here, there = _statuses(case, kind)
    orphan = _orphan(case) if kind is DriftType.ORPHAN_ON_AGENT else None
    sighted = case.sighted
    sure = _is_sure(case, kind)
    return Finding(
        sighted.node_id, sighted.workload_id, kind, sighted.at, here, there, orphan, sure
    )


def _statuses(case: _Case, kind: DriftType) -> tuple[str, str]:
    report, workload = case.sighted.report, case.recorded.workload
    if kind is DriftType.REVISION_MISMATCH and report and workload:
        return workload.revision_id, report.revision_id
    return str(case.status or ""), _told_state(report) if report else MISSING


def _told_state(report: AgentReport) -> str:
    """What the record says of a copy; one that is gone and told to stop is no copy that runs."""
    return str(AgentState.STOPPED if says_gone_and_stopped(report) else report.state)


def _orphan(case: _Case) -> Orphan:
    report = case.sighted.report
    return Orphan(
        orphan_kind(case.recorded.workload, case.recorded.assignment),
        case.sighted.listings,
        case.sighted.created_at,
        report.revision_id if report else "",
    )


def orphan_kind(workload: Workload | None, assignment: Assignment | None) -> OrphanKind:
    """What kind of orphan a workload with these records is on a node that is not its own."""
    if workload is None:
        return OrphanKind.UNKNOWN
    if workload.desired_state is DesiredState.DELETED:
        return OrphanKind.RESIDUAL
    return OrphanKind.STRAY if assignment is None else OrphanKind.DUPLICATE

"""Everything that a reconcile decision looks at, reduced to a handful of closed facts.

``assess`` computes the facts from records and sightings; the table in ``decide`` sees only the
facts, which is what makes it total and its test exhaustive.

Size: one small function per fact, and no fact is computed anywhere else.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from attrs import frozen

from persys_core.model.event import capped
from persys_core.model.remarks import is_worth_a_write
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, ObservedState, RestartPolicy, WorkloadStatus
from persys_core.model.workload import Assignment, Intent, IntentAction, StatusRecord, Workload
from persys_core.nodes.leaving import Leaving
from persys_core.nodes.liveness import NodeCondition
from persys_core.reconcile.observe import Sighting

__all__ = [
    "AT_REST",
    "Charge",
    "Circumstances",
    "Known",
    "Outlook",
    "Seen",
    "Situation",
    "Timing",
    "assess",
    "charge_of",
    "is_underway",
    "outlook_of",
]


AT_REST = frozenset((
    ObservedState.STOPPED, ObservedState.COMPLETED, ObservedState.FAILED, ObservedState.MISSING
))  # fmt: skip
"""Sightings of what uses nothing of its node."""


class Charge(StrEnum):
    """Where the workload stands in the ledger."""

    UNASSIGNED = "unassigned"
    RELEASED = "released"
    """Assigned, but its share was given back (it had Completed or Failed)."""
    SHORT = "short"
    """Charged with less than the present spec asks (a resize that did not fit yet)."""
    CHARGED = "charged"


class Outlook(StrEnum):
    """What is still owed to the user's wish."""

    RUN = "run"
    STOP = "stop"
    DELETE = "delete"
    COMPLETED = "completed"
    """Wanted Running, ended well: must stay stopped."""
    HALTED = "halted"
    """Wanted Running, failed for good: must stay stopped."""
    WATCHED = "watched"
    """Imported, and its spec is not known: nothing can be sent, so it is only followed."""


@frozen
class Situation:
    """The facts. Booleans are only ever about the assigned node."""

    outlook: Outlook
    charge: Charge
    node: NodeCondition
    observed: ObservedState
    confirmed: bool = False
    """The observation is a status query's answer, newer than the last call to the agent."""
    revision_matches: bool = False
    task_in_flight: bool = False
    new_failure: bool = False
    """The sighting shows a failure that is not counted yet."""
    sent_here: bool = False
    """The present revision or an older one was sent to this node before."""
    found_here: bool = False
    """A copy of it was there before it was assigned there; nothing was sent since."""
    call_underway: bool = False
    """A call may still arrive: an earlier leader's, or one of ours that was not answered."""
    retry_due: bool = True
    reapply_due: bool = True
    within_missing_grace: bool = False
    start_overdue: bool = False
    pinned: bool = False
    """Its data is on its node: it may not move."""
    recorded: bool = False
    """The status record already says what is observed."""
    delete_sent: bool = False
    """A delete was sent and its time to take effect is not over."""
    leaving: Leaving = Leaving.STAYS
    starting: bool = False
    """It was sent to run, and its time to start is not over."""
    old_copy: bool = False
    """One of its volumes may still be written to by its old copy or by another workload."""
    held: bool = False
    """Its lost node may still write to a volume that one node at a time may write to."""
    uncallable: bool = False
    """Its node beats, and its agent could not be called for the whole grace."""
    poll_due: bool = False
    """A call is open, and the agent was not asked about it lately."""
    ended_early: bool = False
    """It stopped by itself before it had run for long, or did not come to run in its time."""
    will_start: bool = False
    """It is to rest and does, but its agent means to start it."""
    ran: bool = False
    """It was running when last seen, and nothing was sent since."""
    unrecorded: bool = False
    """Its agent lost its record of what runs there, and was not told again lately."""


@frozen
class Timing:
    """Durations that the facts depend on."""

    missing_grace: timedelta = timedelta(seconds=10)
    delete_timeout: timedelta = timedelta(seconds=60)
    poll_interval: timedelta = timedelta(seconds=1)


def outlook_of(workload: Workload, status: StatusRecord) -> Outlook:
    """What is owed, given what was wished and what became of it."""
    match workload.desired_state:
        case DesiredState.DELETED:
            return Outlook.DELETE
        case _ if workload.imported is not None:
            return Outlook.WATCHED
        case DesiredState.STOPPED:
            return Outlook.STOP
        case DesiredState.RUNNING:
            if status.status is WorkloadStatus.COMPLETED:
                return Outlook.COMPLETED
            return Outlook.HALTED if status.retry.exhausted else Outlook.RUN


def _outlook(workload: Workload, status: StatusRecord, seen: Seen | None) -> Outlook:
    """As ``outlook_of``, but what another scheduler gave up and runs all the same is let run.

    Its verdict came without a failure record; ours has one.
    """
    outlook = outlook_of(workload, status)
    if outlook is not Outlook.HALTED or status.failure is not None or seen is None:
        return outlook
    runs = seen.sighting.state is ObservedState.RUNNING
    return Outlook.RUN if runs and seen.sighting.revision_id == workload.revision_id else outlook


def charge_of(assignment: Assignment | None, demand: Resources) -> Charge:
    """Where the workload stands in the ledger; ``demand`` is its charge on its present node."""
    if assignment is None:
        return Charge.UNASSIGNED
    if assignment.released:
        return Charge.RELEASED
    return Charge.CHARGED if demand.fits_in(assignment.charged) else Charge.SHORT


@frozen
class Seen:
    """A sighting, when it was made, and whether the agent was asked about just this workload; then
    it was asked at ``at``, and answered at ``heard_at``."""

    sighting: Sighting
    at: datetime
    by_query: bool
    heard_at: datetime | None = None


@frozen
class Known:
    """What is recorded and seen of one workload. ``demand`` is its charge on its present node."""

    workload: Workload
    status: StatusRecord
    assignment: Assignment | None
    demand: Resources
    seen: Seen | None


@frozen
class Circumstances:
    """What else a decision depends on: the node, who decides, and when. ``tell_again_after``: how
    long after it was sent an agent that lost its record of it may be told of it again."""

    node: NodeCondition
    pinned: bool
    epoch: int
    apply_timeout: timedelta
    timing: Timing
    now: datetime
    leaving: Leaving = Leaving.STAYS
    old_copy: bool = False
    held: bool = False
    uncallable: bool = False
    stable_after: timedelta = timedelta(minutes=10)
    tell_again_after: timedelta = timedelta(seconds=45)


def assess(known: Known, around: Circumstances) -> Situation:
    """Reduce records and sightings to facts. Pure."""
    workload, status, assignment = known.workload, known.status, known.assignment
    seen, now, timing = known.seen, around.now, around.timing
    last_sent = status.reapply.last_apply_at
    overdue = last_sent is not None and now >= last_sent + around.apply_timeout
    intent = status.intent
    observed = seen.sighting.state if seen else ObservedState.UNKNOWN
    return Situation(
        outlook=_outlook(workload, status, seen),
        charge=charge_of(assignment, known.demand),
        node=around.node,
        observed=observed,
        confirmed=_is_confirmed(seen, status),
        revision_matches=seen is not None and seen.sighting.revision_id == workload.revision_id,
        task_in_flight=seen is not None and seen.sighting.task_in_flight,
        new_failure=_is_new_failure(seen, status),
        sent_here=_was_sent(status, assignment),
        found_here=_was_found(status, assignment),
        call_underway=intent is not None and is_underway(intent, around.epoch, now),
        retry_due=status.retry.next_at is None or status.retry.next_at <= now,
        reapply_due=_reapply_due(workload, status, now),
        within_missing_grace=last_sent is not None and now < last_sent + timing.missing_grace,
        start_overdue=overdue and not _is_restarting(workload, seen, status),
        pinned=around.pinned,
        leaving=around.leaving,
        starting=_is_starting(intent) and not overdue,
        old_copy=around.old_copy,
        held=around.held,
        uncallable=around.uncallable,
        recorded=_is_recorded(known, now),
        delete_sent=_delete_sent(status, now, timing),
        poll_due=intent is not None and now - _asked_at(intent, seen) >= timing.poll_interval,
        will_start=seen is not None and seen.sighting.will_start,
        ran=_ran(status),
        unrecorded=seen is not None and seen.sighting.unrecorded and _may_be_told(status, around),
        ended_early=_ended_early(seen, status, now - around.stable_after, overdue=overdue),
    )


def _ran(status: StatusRecord) -> bool:
    return status.status is WorkloadStatus.RUNNING and status.intent is None


def _may_be_told(status: StatusRecord, around: Circumstances) -> bool:
    last_sent = status.reapply.last_apply_at
    return last_sent is None or around.now >= last_sent + around.tell_again_after


def _is_restarting(workload: Workload, seen: Seen | None, status: StatusRecord) -> bool:
    """Whether its runtime starts it again after an end, by its restart policy, for as long as that
    takes: it was running, and nothing was sent since."""
    pending = seen is not None and seen.sighting.state is ObservedState.PENDING
    return pending and _ran(status) and workload.spec.restart_policy not in (None, RestartPolicy.NO)


def _ended_early(
    seen: Seen | None, status: StatusRecord, stable_since: datetime, *, overdue: bool
) -> bool:
    """One that ran for long and stops is started again and nothing is counted: its budget is new.

    What was never seen running counts only once its time to start is over, since some agents say
    *stopped* before they have begun.
    """
    if seen is None or not seen.sighting.ended:
        return False
    if status.status is WorkloadStatus.RUNNING and status.intent is None:
        return status.settled_since is not None and status.settled_since > stable_since
    return overdue and _is_starting(status.intent)


def _is_starting(intent: Intent | None) -> bool:
    """Whether a call to run it was taken, and nothing was learnt of its outcome yet."""
    if intent is None or intent.unanswered:
        return False
    return intent.action is IntentAction.APPLY_RUNNING


def is_underway(intent: Intent, epoch: int, now: datetime) -> bool:
    """Whether the announced call may still reach the agent although nobody waits for its answer.

    ``epoch`` is the present leader's.
    """
    return (intent.unanswered or intent.epoch != epoch) and now < intent.deadline


def _asked_at(intent: Intent, seen: Seen | None) -> datetime:
    """When something was last learnt of an open call.

    What lists and beats say is nothing, unless it is that the workload runs: they hide tasks in
    flight and how a job ended, and with short intervals they come so often that they would put the
    question off for ever.
    """
    if seen is None or not (seen.by_query or seen.sighting.state is ObservedState.RUNNING):
        return intent.committed_at
    # A slow answer is as good as a quick one: who asked for long need not ask again at once.
    return seen.heard_at or seen.at


def _is_confirmed(seen: Seen | None, status: StatusRecord) -> bool:
    if seen is None or not seen.by_query:
        return False
    intent = status.intent
    if intent is None:
        sent_at = status.reapply.last_apply_at
        return sent_at is None or seen.at >= sent_at
    return seen.at >= (intent.deadline if intent.unanswered else intent.committed_at)


def _is_new_failure(seen: Seen | None, status: StatusRecord) -> bool:
    """A failure counts once per apply: what was sent after the last count may fail anew."""
    if seen is None or seen.sighting.failure is None:
        return False
    if status.failure is None or status.status is not WorkloadStatus.RETRY_PENDING:
        return True
    last_sent = status.reapply.last_apply_at
    return last_sent is not None and last_sent > status.failure.at


def _was_sent(status: StatusRecord, assignment: Assignment | None) -> bool:
    if assignment is None or status.reapply.last_apply_at is None:
        return False
    return status.reapply.last_apply_at >= assignment.created_at


def _was_found(status: StatusRecord, assignment: Assignment | None) -> bool:
    if assignment is None or _was_sent(status, assignment):
        return False
    seen = status.observed
    return seen.node_id == assignment.node_id and seen.at == assignment.created_at


def _reapply_due(workload: Workload, status: StatusRecord, now: datetime) -> bool:
    reapply = status.reapply
    if reapply.last_apply_revision != workload.revision_id:
        return True
    return reapply.next_at is None or reapply.next_at <= now


_TERMINAL = (WorkloadStatus.COMPLETED, WorkloadStatus.FAILED)
_EXPECTED_STATUS = {
    ObservedState.RUNNING: WorkloadStatus.RUNNING,
    ObservedState.STOPPED: WorkloadStatus.STOPPED,
    ObservedState.MISSING: WorkloadStatus.STOPPED,
    ObservedState.FAILED: WorkloadStatus.STOPPED,
    ObservedState.COMPLETED: WorkloadStatus.STOPPED,
}


def _is_recorded(known: Known, now: datetime) -> bool:
    """Whether nothing would change by writing the sighting down."""
    workload, status = known.workload, known.status
    assignment, seen = known.assignment, known.seen
    if assignment is None:
        return status.status is WorkloadStatus.STOPPED or status.status in _TERMINAL
    if seen is None:
        return False
    if outlook_of(workload, status) is Outlook.WATCHED:
        return _is_noted(status, seen, assignment)
    if status.status is WorkloadStatus.FAILED and not assignment.released:
        return False
    terminal = status.status in _TERMINAL
    if not terminal and _has_news(status, seen, now):
        return False
    right_status = terminal or status.status is _EXPECTED_STATUS.get(seen.sighting.state)
    return (
        right_status
        and status.intent is None
        and (terminal or status.reason is None)
        and status.observed.node_id == assignment.node_id
        and (terminal or status.observed.state is seen.sighting.state)
        and (
            terminal
            or status.observed.revision_id == workload.revision_id
            or seen.sighting.state is not ObservedState.RUNNING
        )
    )


def _has_news(status: StatusRecord, seen: Seen, now: datetime) -> bool:
    """Whether its agent remarks something of it that the record does not say."""
    if seen.sighting.state is not ObservedState.RUNNING:
        return False
    message = capped(seen.sighting.message)
    return is_worth_a_write(status.observed.message, status.observed.at, message, now)


def _is_noted(status: StatusRecord, seen: Seen, assignment: Assignment) -> bool:
    """Whether the record of a workload that is only followed says what was seen last."""
    observed = status.observed
    sighting = seen.sighting
    same = (observed.state, observed.node_id) == (sighting.state, assignment.node_id)
    return (
        same
        and status.intent is None
        and status.status is not WorkloadStatus.SCHEDULED
        and sighting.revision_id in ("", observed.revision_id)
    )


def _delete_sent(status: StatusRecord, now: datetime, timing: Timing) -> bool:
    intent = status.intent
    if intent is None or intent.action != "delete":
        return False
    return now < intent.committed_at + timing.delete_timeout

"""How a status record changes: one pure function per thing that can happen to a workload.

Decided here: the record's next value. A function that changes nothing gives back the very record
it was given, so that nothing is written (a steady cluster writes nothing).

Size: the list of what can happen, each a few lines.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import evolve

from persys_core.model.event import capped
from persys_core.model.ids import NodeId
from persys_core.model.remarks import Remark, is_worth_a_write, remark_of
from persys_core.model.states import DesiredState, ObservedState, WorkloadStatus
from persys_core.model.workload import (
    Failure,
    FailureKind,
    Intent,
    IntentAction,
    Observed,
    Reason,
    RetryState,
    StatusRecord,
    Workload,
)
from persys_core.reconcile.reapply import ReapplyPolicy, after_apply, released
from persys_core.reconcile.situation import Outlook, Seen
from persys_core.retry import machine
from persys_core.retry.policy import RetryPolicy

__all__ = [
    "IMPORT_ADVICE",
    "assigned",
    "awaiting",
    "call_announced",
    "completed",
    "created",
    "deleting",
    "desired_state_changed",
    "failed",
    "heard",
    "import_completed",
    "left",
    "noted",
    "resized",
    "retried",
    "runs_meanwhile",
    "settled",
    "spec_changed",
    "unassigned",
]

IMPORT_ADVICE = "its spec is not known: apply it to have the workload managed again"
MESSAGE_REFRESH = timedelta(seconds=60)
"""A reason whose code stays is written again at most this often (field report V02)."""


def created(workload: Workload, now: datetime) -> StatusRecord:
    """A new wish; nothing was done about it yet."""
    wants_to_run = workload.desired_state is DesiredState.RUNNING
    status = WorkloadStatus.PENDING if wants_to_run else WorkloadStatus.STOPPED
    return StatusRecord(workload.id, workload.uid, status, now, last_action="Created")


def _cleared(status: StatusRecord, now: datetime) -> StatusRecord:
    """Without any trace of old failures (defect C8)."""
    return evolve(
        status,
        reason=None,
        failure=None,
        retry=RetryState(),
        reapply=released(status.reapply),
        settled_since=None,
        updated_at=now,
    )


def spec_changed(status: StatusRecord, workload: Workload, now: datetime) -> StatusRecord:
    """A new revision: old failures say nothing of it."""
    next_status = {
        DesiredState.RUNNING: WorkloadStatus.UPDATING,
        DesiredState.STOPPED: WorkloadStatus.STOPPED,
    }.get(workload.desired_state, status.status)
    return evolve(_cleared(status, now), status=next_status, last_action="Updated")


def desired_state_changed(status: StatusRecord, workload: Workload, now: datetime) -> StatusRecord:
    """Started or stopped by the user: acted upon at once, no guard of the other state holds."""
    start = workload.desired_state is DesiredState.RUNNING
    return evolve(
        _cleared(status, now),
        status=WorkloadStatus.PENDING if start else WorkloadStatus.UPDATING,
        last_action="DesiredStateUpdated",
    )


def import_completed(
    status: StatusRecord, imported: Workload, completed: Workload, now: datetime
) -> StatusRecord:
    """The spec of what was imported is known now, and is the one that its agent has."""
    if completed.desired_state is not imported.desired_state:
        return desired_state_changed(status, completed, now)
    if status.status in (WorkloadStatus.RUNNING, WorkloadStatus.STOPPED):
        return evolve(status, updated_at=now, last_action="ImportCompleted")
    return evolve(
        _cleared(status, now), status=WorkloadStatus.PENDING, last_action="ImportCompleted"
    )


def retried(status: StatusRecord, now: datetime) -> StatusRecord:
    """RetryWorkload: a new budget, now. What runs as wished is left alone."""
    if status.status is WorkloadStatus.RUNNING:
        return status
    return evolve(
        _cleared(status, now), status=WorkloadStatus.PENDING, last_action="RetryTriggered"
    )


def deleting(status: StatusRecord, now: datetime) -> StatusRecord:
    """The user's delete was accepted."""
    return evolve(
        _cleared(status, now), status=WorkloadStatus.DELETING, last_action="MarkedDeleted"
    )


def assigned(status: StatusRecord, now: datetime, seen_on: NodeId = "") -> StatusRecord:
    """A node was found; what was sent elsewhere before does not count there.

    ``seen_on``: that node, where a copy of it is there already, which is asked about first.
    """
    return evolve(
        status,
        status=WorkloadStatus.SCHEDULED,
        reason=None,
        reapply=released(status.reapply),
        observed=Observed(node_id=seen_on, at=now) if seen_on else Observed(),
        intent=None,
        updated_at=now,
        last_action="Assigned",
        stopped_on="",
    )


def unassigned(status: StatusRecord, reason: Reason, now: datetime) -> StatusRecord:
    """Its node is gone or must be left, and none was found yet."""
    return evolve(
        status,
        status=WorkloadStatus.PENDING,
        reason=reason,
        observed=Observed(),
        intent=None,
        settled_since=None,
        updated_at=now,
        last_action="Unassigned",
    )


def left(status: StatusRecord, now: datetime) -> StatusRecord:
    """Its node left the cluster while it rested: no call to that node is waited for any more."""
    if status.intent is None:
        return status
    return evolve(status, intent=None, updated_at=now)


def resized(status: StatusRecord, now: datetime) -> StatusRecord:
    """The ledger holds what the new revision asks; a reason why it did not is gone."""
    if not status.waits_to_grow:
        return status
    return evolve(status, status=WorkloadStatus.UPDATING, reason=None, updated_at=now)


def runs_meanwhile(
    status: StatusRecord, seen: Seen, node_id: NodeId, now: datetime
) -> StatusRecord:
    """An older revision came to run while the present one waits for room: whoever keeps another
    copy for its sake has to know. Written once, not at every look."""
    sighting, known = seen.sighting, status.observed
    if sighting.state is not ObservedState.RUNNING:
        return status
    if (known.state, known.node_id) == (sighting.state, node_id):
        return status
    message = capped(sighting.message)
    observed = Observed(sighting.state, sighting.revision_id, node_id, seen.at, message)
    return evolve(status, observed=observed, updated_at=now)


def awaiting(
    status: StatusRecord,
    code: str,
    message: str,
    now: datetime,
    *,
    next_status: WorkloadStatus | None = None,
    next_try_at: datetime | None = None,
) -> StatusRecord:
    """It has to wait, and says why. The same reason is not written again and again."""
    shown = next_status or status.status
    text = capped(message)
    known = status.reason
    if known is not None and known.code == code and status.status is shown:
        fresh = now - status.updated_at < MESSAGE_REFRESH
        if known.message == text or fresh:
            return status
        return evolve(
            status, reason=evolve(known, message=text, next_try_at=next_try_at), updated_at=now
        )
    reason = Reason(code, text, since=now, next_try_at=next_try_at)
    return evolve(status, status=shown, reason=reason, updated_at=now)


def call_announced(
    status: StatusRecord,
    workload: Workload,
    intent: Intent,
    policy: ReapplyPolicy,
    *,
    local_data: bool,
) -> StatusRecord:
    """The intent of an agent call, with all that the call costs, committed before it is made.

    ``local_data``: the call makes or uses data on the node, which the record then remembers.
    """
    now = intent.committed_at
    announced = evolve(status, intent=intent, updated_at=now, last_action=intent.action.value)
    if intent.action is IntentAction.DELETE:
        return announced
    reapply = after_apply(status.reapply, workload.revision_id, workload.spec.type, policy, now)
    stops = intent.action is IntentAction.APPLY_STOPPED
    announced = evolve(announced, reapply=evolve(reapply, last_apply_stops=stops))
    if stops:
        return announced
    updating = status.status is WorkloadStatus.UPDATING
    return evolve(
        announced,
        status=WorkloadStatus.UPDATING if updating else WorkloadStatus.SCHEDULED,
        settled_since=None,
        data_node_id=intent.node_id if local_data else "",
    )


def settled(
    status: StatusRecord, outlook: Outlook, seen: Seen | None, node_id: NodeId, now: datetime
) -> StatusRecord:
    """Observed equals desired: timers off, what failed before is history."""
    next_status, keep_reason = _settled_status(status, outlook)
    observed = Observed()
    if seen is not None:
        sighting = seen.sighting
        observed = Observed(
            sighting.state, sighting.revision_id, node_id, seen.at, capped(sighting.message)
        )
    retry = status.retry
    if outlook is Outlook.RUN:
        retry = RetryState() if retry.exhausted else retry
        retry = evolve(retry, next_at=None, infrastructure_failures=0, avoid_node_id="")
    changed = evolve(
        status,
        status=next_status,
        observed=observed,
        reason=status.reason if keep_reason else None,
        failure=status.failure if keep_reason else None,
        retry=retry,
        reapply=released(status.reapply, counts_on=_may_not_know(status, seen)),
        intent=None,
        settled_since=(status.settled_since or now) if outlook is Outlook.RUN else None,
        updated_at=now,
    )
    if outlook is Outlook.RUN and _is_news(status.observed, observed.message, now):
        return changed
    same = evolve(
        changed,
        updated_at=status.updated_at,
        observed=evolve(observed, at=status.observed.at, message=status.observed.message),
    )
    return status if same == status else changed


def _may_not_know(status: StatusRecord, seen: Seen | None) -> bool:
    """Whether its agent did not take in that it runs. Beats do not show that, and what was listed
    may be from before it was told, so only an answer says that it did."""
    if seen is None:
        return False
    was_told = status.intent is not None and status.settled_since is not None
    return seen.sighting.unrecorded or (was_told and not seen.by_query)


def heard(status: StatusRecord, seen: Seen, now: datetime) -> StatusRecord:
    """What its agent remarks of a workload that ran, while its runtime starts it again. Most looks
    at one that crashes at once find it so, so this is where its restarts are told."""
    message = capped(seen.sighting.message)
    runs = status.status is WorkloadStatus.RUNNING and status.intent is None
    if not runs or remark_of(message) is Remark.NONE or not _is_news(status.observed, message, now):
        return status
    observed = evolve(status.observed, at=seen.at, message=message)
    return evolve(status, observed=observed, updated_at=now)


def _is_news(known: Observed, message: str, now: datetime) -> bool:
    return is_worth_a_write(known.message, known.at, message, now)


def noted(status: StatusRecord, seen: Seen, node_id: NodeId, now: datetime) -> StatusRecord:
    """What is seen of a workload that is only followed, since its spec is not known."""
    sighting = seen.sighting
    shown = _NOTED.get(sighting.state, WorkloadStatus.UNKNOWN)
    revision_id = sighting.revision_id or status.observed.revision_id
    message = capped(sighting.message)
    reason = None
    if shown is WorkloadStatus.UNKNOWN:
        text = f"{node_id} says {sighting.state}" + (f": {message}" if message else "")
        since = status.reason.since if status.reason else now
        reason = Reason("imported", capped(f"{text}; {IMPORT_ADVICE}"), since=since)
    return evolve(
        status,
        status=shown,
        observed=Observed(sighting.state, revision_id, node_id, seen.at, message),
        reason=reason,
        reapply=released(status.reapply),
        intent=None,
        updated_at=now,
    )


_NOTED = {
    ObservedState.RUNNING: WorkloadStatus.RUNNING,
    ObservedState.STOPPED: WorkloadStatus.STOPPED,
    ObservedState.COMPLETED: WorkloadStatus.STOPPED,
}


def _settled_status(status: StatusRecord, outlook: Outlook) -> tuple[WorkloadStatus, bool]:
    match outlook:
        case Outlook.RUN:
            return WorkloadStatus.RUNNING, False
        case Outlook.COMPLETED:
            return WorkloadStatus.COMPLETED, True
        case Outlook.HALTED:
            return WorkloadStatus.FAILED, True
        case Outlook.STOP | Outlook.DELETE:
            return WorkloadStatus.STOPPED, False
        case Outlook.WATCHED:
            return status.status, True


def completed(status: StatusRecord, seen: Seen, node_id: NodeId, now: datetime) -> StatusRecord:
    """It ended well; its share is free from this commit on."""
    sighting = seen.sighting
    return evolve(
        status,
        status=WorkloadStatus.COMPLETED,
        observed=Observed(
            sighting.state, sighting.revision_id, node_id, seen.at, capped(sighting.message)
        ),
        reason=None,
        failure=None,
        retry=RetryState(),
        reapply=released(status.reapply),
        intent=None,
        settled_since=None,
        updated_at=now,
        last_action="Completed",
    )


def failed(
    status: StatusRecord, failure: Failure, policy: RetryPolicy, node_id: NodeId
) -> tuple[StatusRecord, machine.Outcome]:
    """A failure is counted: retried later, or given up.

    After an infrastructure failure the open call stays open, as not answered: it may have
    arrived, so nothing is known of the workload until its deadline.
    """
    outcome = machine.on_failure(
        status.retry,
        failure,
        policy,
        node_id=node_id,
        settled_since=status.settled_since,
        reason=status.reason,
    )
    if outcome.verdict is machine.Verdict.UNCHANGED:
        return status, outcome
    observed = status.observed
    if failure.kind is not FailureKind.INFRASTRUCTURE:
        observed = Observed(ObservedState.FAILED, observed.revision_id, node_id, failure.at)
    changed = evolve(
        status,
        status=outcome.status or status.status,
        observed=observed,
        reason=outcome.reason,
        failure=failure,
        retry=outcome.state,
        reapply=released(status.reapply),
        intent=_unanswered(status.intent, failure),
        settled_since=None,
        updated_at=failure.at,
        last_action="RetryExhausted" if outcome.state.exhausted else "RetryScheduled",
    )
    return changed, outcome


def _unanswered(intent: Intent | None, failure: Failure) -> Intent | None:
    if intent is None or failure.kind is not FailureKind.INFRASTRUCTURE:
        return None
    return evolve(intent, unanswered=True)

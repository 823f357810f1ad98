"""Rules 3, 4 and 7: what is sent to agents, when, and by whose wish.

A call is judged twice. When its intent is committed: may it be sent now, and who wanted it? When
it is sent: was it announced? Each announcement is good for one call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from attrs import evolve, frozen

from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.states import DesiredState, TaintEffect, WorkloadStatus
from persys_core.model.workload import (
    Assignment,
    Intent,
    IntentAction,
    StatusRecord,
    Tombstone,
)
from persys_core.nodes.liveness import lost_at
from persys_core.placement.demand import charge_for
from persys_core.placement.request import PlacementRequest
from persys_core.ports.agents import ApplyRequest, DeleteRequest
from persys_core.ports.cluster_store import Record
from persys_core.retry.failure import is_node_bound
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.sim.invariants_orphans import is_orphan_to_delete
from persys_core.sim.mirror import Step, Touched

__all__ = [
    "Announcements",
    "budget",
    "is_lost",
    "new_intents",
    "patience",
    "wanted",
]


_COMMIT_TRAVELS = timedelta(seconds=10)


@frozen
class _Announced:
    node_id: NodeId
    workload_id: WorkloadId
    action: IntentAction
    revision_id: RevisionId
    epoch: int


class Announcements:
    """Rule 3, at the call: every apply and every delete follows an intent committed for it."""

    def __init__(self) -> None:
        self._open: Counter[_Announced] = Counter()

    def note(self, step: Step) -> None:
        """Take the intents that a commit announced."""
        for workload_id, intent in new_intents(step):
            self._open[_announced(workload_id, intent)] += 1

    def applied(self, node_id: NodeId, request: ApplyRequest) -> Iterator[Finding]:
        """An apply is being sent."""
        stops = request.desired_state is DesiredState.STOPPED
        action = IntentAction.APPLY_STOPPED if stops else IntentAction.APPLY_RUNNING
        yield from self._called(
            _Announced(node_id, request.workload_id, action, request.revision_id, request.epoch)
        )

    def deleted(self, node_id: NodeId, request: DeleteRequest) -> Iterator[Finding]:
        """A delete is being sent; its request has no revision, so any announced one will do."""
        for known in self._open:
            if (known.node_id, known.workload_id, known.epoch, known.action) == (
                node_id,
                request.workload_id,
                request.epoch,
                IntentAction.DELETE,
            ):
                yield from self._called(known)
                return
        yield from self._called(
            _Announced(node_id, request.workload_id, IntentAction.DELETE, "", request.epoch)
        )

    def _called(self, call: _Announced) -> Iterator[Finding]:
        if self._open[call] > 0:
            self._open[call] -= 1
            if not self._open[call]:
                del self._open[call]
            return
        del self._open[call]
        yield Finding(
            Rule.INTENT,
            f"{call.action} {call.revision_id[:8]} is sent to {call.node_id} under epoch"
            f" {call.epoch}, and no commit announced it",
            (call.workload_id, call.node_id),
        )


def patience(scene: Scene, step: Step) -> Iterator[Finding]:
    """Rule 4: no apply is announced before the retry and re-apply times of the record."""
    for before, after in _status_changes(step):
        intent = after.intent
        if before is None or intent is None or not _is_new(before.intent, intent):
            continue
        if intent.action is IntentAction.DELETE:
            continue
        due = before.retry.next_at
        if intent.action is IntentAction.APPLY_RUNNING and _is_early(due, step.at):
            yield _too_early(after, intent, f"its retry is due at {due}")
        if _is_early(_guard_of(before, after, intent), step.at):
            yield _too_early(after, intent, f"it may be re-applied at {before.reapply.next_at}")


def budget(scene: Scene, step: Step) -> Iterator[Finding]:
    """Rule 4: attempts stay within the budget, and what was given up is not started again."""
    limit = scene.config.retry.max_attempts
    for before, after in _status_changes(step):
        if after.retry.attempts > limit:
            yield Finding(Rule.PATIENCE, f"{after.retry.attempts} attempts of {limit}", (after.id,))
        given_up = before is not None and before.retry.exhausted and after.retry.exhausted
        if given_up and _starts(before, after):
            yield Finding(Rule.PATIENCE, "it was given up and is started again", (after.id,))


def wanted(scene: Scene, step: Step) -> Iterator[Finding]:
    """Rule 7: a stop, a delete and a tombstone have a cause in a user, an eviction or a failure.

    Judged by what users asked and by what machines did, never by what the store says.
    """
    for change in step.touched:
        if isinstance(change.after, Tombstone) and _is_new_grave(change):
            yield from _grave_without_cause(scene, step, change.after)
    for _, after in _status_changes(step):
        yield from _stop_without_cause(scene, step, after)


def new_intents(step: Step) -> Iterator[tuple[WorkloadId, Intent]]:
    """The agent calls that a commit announces, of workloads and of tombstones.

    A tombstone may carry on the open call of the assignment that it takes the place of.
    """
    known = [(_owner(each.before), _intent_of(each.before)) for each in step.touched]
    for change in step.touched:
        owner, intent = _owner(change.after), _intent_of(change.after)
        if intent is not None and not any(
            owner == other and not _is_new(before, intent) for other, before in known
        ):
            yield owner, intent


def _intent_of(record: Record | None) -> Intent | None:
    return record.intent if isinstance(record, StatusRecord | Tombstone) else None


def _owner(record: Record | None) -> WorkloadId:
    match record:
        case StatusRecord():
            return record.id
        case Tombstone():
            return record.workload_id
        case _:
            return ""


def _announced(workload_id: WorkloadId, intent: Intent) -> _Announced:
    return _Announced(intent.node_id, workload_id, intent.action, intent.revision_id, intent.epoch)


def _is_new(known: Intent | None, intent: Intent) -> bool:
    return known is None or evolve(known, unanswered=False) != evolve(intent, unanswered=False)


def _status_changes(step: Step) -> Iterator[tuple[StatusRecord | None, StatusRecord]]:
    for change in step.touched:
        if isinstance(change.after, StatusRecord):
            before = change.before
            yield before if isinstance(before, StatusRecord) else None, change.after


def _is_early(due: datetime | None, at: datetime) -> bool:
    return due is not None and at < due


def _guard_of(before: StatusRecord, after: StatusRecord, intent: Intent) -> datetime | None:
    """When the same revision may be sent again; an end that was just recorded opens the guard."""
    if before.reapply.last_apply_revision != intent.revision_id:
        return None
    completes = before.status is not after.status and after.status is WorkloadStatus.COMPLETED
    return None if completes else before.reapply.next_at


def _too_early(after: StatusRecord, intent: Intent, why: str) -> Finding:
    return Finding(
        Rule.PATIENCE, f"{intent.action} was announced, but {why}", (after.id, intent.node_id)
    )


def _starts(before: StatusRecord | None, after: StatusRecord) -> bool:
    intent = after.intent
    return (
        intent is not None
        and intent.action is IntentAction.APPLY_RUNNING
        and _is_new(before.intent if before else None, intent)
    )


def _is_new_grave(change: Touched) -> bool:
    before, after = change.before, change.after
    assert isinstance(after, Tombstone)
    return not isinstance(before, Tombstone) or before.created_at != after.created_at


def _grave_without_cause(scene: Scene, step: Step, grave: Tombstone) -> Iterator[Finding]:
    subjects = (grave.workload_id, grave.node_id)
    by_user = scene.wishes.wants_delete(grave.workload_id)
    if grave.delete_volumes and not by_user:
        yield Finding(Rule.NO_STRAY_STOP, "its data is to be deleted, no user said so", subjects)
    caused = (
        by_user
        or is_lost(scene, grave.node_id, step.at)
        or _was_lost_just_now(scene, grave.node_id, step.at)
        or _cannot_be_called(scene, grave.node_id, step.at)
        or _is_to_be_left(scene, grave.node_id)
        or _had_ended(step, grave)
        or _failed_there(step, grave)
        or _outgrew_its_node(scene, step, grave)
        or is_orphan_to_delete(scene, step.at, grave)
    )
    if not caused:
        yield Finding(
            Rule.NO_STRAY_STOP,
            f"{grave.node_id} is to delete it ({grave.reason}); no user, eviction or failure"
            " caused that",
            subjects,
        )


def is_lost(scene: Scene, node_id: NodeId, now: datetime) -> bool:
    """Whether the node was silent for the whole grace, so that its work may move."""
    expired = scene.liveness.expired_since(node_id)
    return expired is not None and now >= lost_at(expired, scene.config.liveness)


def _is_to_be_left(scene: Scene, node_id: NodeId) -> bool:
    """Whether an operator's word has work leave the node: a drain, or a NoExecute taint."""
    node = scene.mirror.node(node_id)
    if node is None:
        return False
    evicts = any(taint.effect is TaintEffect.NO_EXECUTE for taint in node.intent.taints)
    return node.intent.draining or evicts


def _cannot_be_called(scene: Scene, node_id: NodeId, now: datetime) -> bool:
    """Whether its agent answered no call for the whole grace, although it may beat."""
    since = scene.unanswered_since.get(node_id)
    return since is not None and now >= since + scene.config.liveness.unavailable_grace


def _was_lost_just_now(scene: Scene, node_id: NodeId, now: datetime) -> bool:
    """It was heard again while the commit that takes its work was on its way."""
    heard_at = scene.was_lost_at.get(node_id)
    return heard_at is not None and now - heard_at <= _COMMIT_TRAVELS


def _had_ended(step: Step, grave: Tombstone) -> bool:
    """It had Completed or Failed there, and was placed elsewhere after that."""
    return any(
        isinstance(change.before, Assignment)
        and change.before.released
        and change.before.workload_id == grave.workload_id
        for change in step.touched
    )


def _failed_there(step: Step, grave: Tombstone) -> bool:
    return any(
        after.id == grave.workload_id
        and after.failure is not None
        and is_node_bound(after.failure.code)
        and after.retry.avoid_node_id == grave.node_id
        for _, after in _status_changes(step)
    )


def _outgrew_its_node(scene: Scene, step: Step, grave: Tombstone) -> bool:
    """Its user changed it, its share there is too small for that, and its old revision does not
    run there, or did not a moment ago. Then nothing that runs is deleted for it."""
    workload, node = scene.mirror.workload(grave.workload_id), scene.mirror.node(grave.node_id)
    held = _given_up(step, grave)
    if workload is None or node is None or held is None:
        return False
    fits = charge_for(PlacementRequest.of(workload), node).fits_in(held.charged)
    return not fits and _rested_just_now(scene, step.at, grave)


def _given_up(step: Step, grave: Tombstone) -> Assignment | None:
    """The assignment that the tombstone takes the place of."""
    for change in step.touched:
        before = change.before
        if isinstance(before, Assignment) and before.workload_id == grave.workload_id:
            return before if before.node_id == grave.node_id else None
    return None


def _rested_just_now(scene: Scene, at: datetime, grave: Tombstone) -> bool:
    """Agents may start again by themselves what rested when they were asked about it."""
    if grave.workload_id not in scene.running.get(grave.node_id, {}):
        return True
    ended_at = scene.ended_at.get((grave.node_id, grave.workload_id))
    return ended_at is not None and at - ended_at <= _COMMIT_TRAVELS


def _stop_without_cause(scene: Scene, step: Step, after: StatusRecord) -> Iterator[Finding]:
    fresh = dict(new_intents(step)).get(after.id)
    if fresh is None or after.intent != fresh:
        return
    subjects = (after.id, fresh.node_id)
    if fresh.action is IntentAction.DELETE and not scene.wishes.wants_delete(after.id):
        yield Finding(Rule.NO_STRAY_STOP, "a delete was announced, no user asked for it", subjects)
    if fresh.action is IntentAction.APPLY_STOPPED and not _may_stop(scene, after, fresh):
        yield Finding(
            Rule.NO_STRAY_STOP,
            f"a stop was announced; its status is {after.status}, no user asked for it, it did"
            " not end by itself and was not given up",
            subjects,
        )


def _may_stop(scene: Scene, after: StatusRecord, intent: Intent) -> bool:
    ended = any(
        (workload_id, revision_id) == (after.id, intent.revision_id)
        for _, workload_id, revision_id in scene.exits
    )
    return (
        scene.wishes.wants_stop(after.id)
        or (after.status is WorkloadStatus.COMPLETED and ended)
        or (after.retry.exhausted and after.failure is not None)
    )

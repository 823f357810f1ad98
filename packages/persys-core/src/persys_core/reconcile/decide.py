"""The reconcile decision: an ordered table, the first rule that matches wins.

Decided here: which one step is next for a workload. Not decided here: what the step writes or
sends (``plans``), nor whether this replica may act at all (leadership and mode come before).
The table is total: the last rule of each outlook has no condition, and a test walks the whole
product of facts.

Size: the rows of all outlooks stand together, since their order is the decision.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from persys_core.model.states import ObservedState
from persys_core.nodes.leaving import Leaving
from persys_core.nodes.liveness import NodeCondition
from persys_core.reconcile.actions import Action
from persys_core.reconcile.situation import AT_REST, Charge, Outlook, Situation

__all__ = ["RULES", "Rule", "decide"]

Condition = Callable[[Situation], bool]


@frozen
class Rule:
    """One row: under which condition which action, and why, in a sentence for people."""

    name: str
    when: Condition
    action: Action
    because: str


def _observed(*states: ObservedState) -> Condition:
    return lambda s: s.observed in states


def _node(*conditions: NodeCondition) -> Condition:
    return lambda s: s.node in conditions


def _all(*conditions: Condition) -> Condition:
    return lambda s: all(condition(s) for condition in conditions)


def _always(_: Situation) -> bool:
    return True


_GONE = _node(NodeCondition.GONE)
_LOST = _node(NodeCondition.LOST)
_SILENT = _node(NodeCondition.NOT_READY, NodeCondition.LOST)
_RUNS_AS_WISHED = _all(_observed(ObservedState.RUNNING), lambda s: s.revision_matches)
_AT_REST = _observed(*AT_REST)
_UNHEARD = _observed(ObservedState.MISSING, ObservedState.UNKNOWN)


def _unassigned(s: Situation) -> bool:
    return s.charge is Charge.UNASSIGNED


def _task(s: Situation) -> bool:
    return s.confirmed and s.task_in_flight


def _fresh_failure(s: Situation) -> bool:
    return s.new_failure and s.revision_matches


def _slow_start(s: Situation) -> bool:
    if s.observed is ObservedState.PENDING:
        return s.revision_matches
    return s.observed is ObservedState.UNKNOWN and s.sent_here and s.confirmed


def _unseen(s: Situation) -> bool:
    return s.observed is ObservedState.UNKNOWN and s.confirmed and s.ran


def _must_leave(s: Situation) -> bool:
    """A pinned workload leaves only where it is made to. One that is just starting is seen
    through first: moved in the middle of it, it would start in both places, or in none."""
    if s.leaving is Leaving.MUST:
        return True
    return s.leaving is Leaving.MOVES and not (s.pinned or s.starting)


def _gives_up_calling(s: Situation) -> bool:
    idle = s.observed is not ObservedState.RUNNING and s.charge is not Charge.RELEASED
    return s.uncallable and idle and not s.pinned and not s.held


def _stays_at_rest(s: Situation) -> bool:
    return _AT_REST(s) and not s.will_start


def _may_outgrow(s: Situation) -> bool:
    """Its node holds too little for the new revision, and nothing keeps it there: neither a copy
    of the old one, nor data, nor a call whose effect may not show yet."""
    may_not_show_yet = s.observed is ObservedState.MISSING and s.within_missing_grace
    return s.charge is Charge.SHORT and _AT_REST(s) and not s.pinned and not may_not_show_yet


def _unrecorded(s: Situation) -> bool:
    may_be_sent = s.charge is Charge.CHARGED and s.retry_due and s.reapply_due and not s.old_copy
    return s.unrecorded and s.recorded and _RUNS_AS_WISHED(s) and may_be_sent


def _ended_well(s: Situation) -> bool:
    return s.observed is ObservedState.COMPLETED and s.revision_matches


DELETE_RULES: tuple[Rule, ...] = (
    Rule("delete-nowhere", _unassigned, Action.FINALIZE_DELETE, "no node has it"),
    Rule(
        "delete-node-gone",
        _GONE,
        Action.FINALIZE_DELETE,
        "its node left the cluster, and its work with it",
    ),
    Rule(
        "delete-node-silent",
        _SILENT,
        Action.ABANDON_DELETE,
        "a delete always ends: the silent node owes it by a tombstone (defect C2)",
    ),
    Rule(
        "delete-call-underway",
        lambda s: s.call_underway,
        Action.AWAIT_INTENT,
        "an unanswered call, or an earlier leader's, may still arrive",
    ),
    Rule(
        "delete-confirmed",
        lambda s: s.confirmed and s.observed is ObservedState.MISSING,
        Action.FINALIZE_DELETE,
        "the agent says that it is gone (decisions §2.1)",
    ),
    Rule(
        "delete-task",
        _task,
        Action.AWAIT_TASK,
        "apply and delete may run in reverse on the agent: one at a time (decisions §2.4)",
    ),
    Rule(
        "delete-underway",
        lambda s: s.delete_sent and not s.poll_due,
        Action.AWAIT_TASK,
        "the agent was told and was asked a moment ago",
    ),
    Rule(
        "delete-ask",
        lambda s: s.delete_sent,
        Action.CONFIRM_DELETE,
        "the agent was told; is it gone?",
    ),
    Rule(
        "delete-look-first",
        lambda s: not s.confirmed,
        Action.INQUIRE,
        "a task in flight shows in a status query only",
    ),
    Rule("delete", _always, Action.DELETE, "the agent has it"),
)

RUN_RULES: tuple[Rule, ...] = (
    Rule(
        "run-failed-nowhere",
        lambda s: _unassigned(s) and not s.retry_due,
        Action.BACKOFF_WAIT,
        "no retry before its time",
    ),
    Rule("run-nowhere", _unassigned, Action.ASSIGN, "it needs a node"),
    Rule("run-node-gone", _GONE, Action.RESCHEDULE, "its node left the cluster (defect C3)"),
    Rule(
        "run-pinned",
        _all(_LOST, lambda s: s.pinned),
        Action.AWAIT_NODE,
        "its data is on the lost node, and starting elsewhere would be without it",
    ),
    Rule(
        "run-held",
        _all(_LOST, lambda s: s.held),
        Action.AWAIT_NODE,
        "silence is no fence: its lost node may still write to its exclusive volume",
    ),
    Rule(
        "run-node-lost", _LOST, Action.RESCHEDULE, "its node was silent for longer than the grace"
    ),
    Rule("run-node-silent", _SILENT, Action.AWAIT_NODE, "its node may be back within the grace"),
    Rule(
        "run-call-underway",
        lambda s: s.call_underway,
        Action.AWAIT_INTENT,
        "an unanswered call, or an earlier leader's, may still arrive",
    ),
    Rule(
        "run-uncallable",
        _gives_up_calling,
        Action.RESCHEDULE,
        "its node beats, but nothing can be sent there, and nothing of it runs there (defect C15)",
    ),
    Rule(
        "run-again-later",
        lambda s: s.charge is Charge.RELEASED and not s.retry_due,
        Action.BACKOFF_WAIT,
        "no retry before its time",
    ),
    Rule(
        "run-again",
        lambda s: s.charge is Charge.RELEASED,
        Action.ASSIGN,
        "its share was given back: the ledger must hold it again before it runs",
    ),
    Rule(
        "run-leave",
        _must_leave,
        Action.LEAVE,
        "its node is drained, or bears a NoExecute taint that it does not tolerate",
    ),
    Rule("run-poll", lambda s: s.poll_due, Action.INQUIRE, "it was sent; how far is it?"),
    Rule(
        "run-task",
        _task,
        Action.AWAIT_TASK,
        "lists hide tasks in flight; while one runs, wait (decisions §2.3)",
    ),
    Rule(
        "run-unrecorded-look",
        lambda s: _unrecorded(s) and not s.confirmed,
        Action.INQUIRE,
        "its agent seems to have lost its record of it; has it?",
    ),
    Rule(
        "run-unrecorded",
        _unrecorded,
        Action.TELL_AGAIN,
        "its agent lost its state, and takes over what runs once it is told what that is",
    ),
    Rule(
        "run-settled",
        _all(_RUNS_AS_WISHED, lambda s: s.recorded),
        Action.NO_ACTION,
        "it runs as wished",
    ),
    Rule(
        "run-settles",
        _RUNS_AS_WISHED,
        Action.SETTLE,
        "it runs as wished, and the record does not say so yet",
    ),
    Rule(
        "run-outgrown-look",
        lambda s: _may_outgrow(s) and not s.confirmed,
        Action.INQUIRE,
        "where the old revision runs on it stays, so its end is asked for",
    ),
    Rule(
        "run-outgrown",
        _may_outgrow,
        Action.OUTGROW,
        "nothing of it runs there, so another node may take the new revision",
    ),
    Rule(
        "run-resize",
        lambda s: s.charge is Charge.SHORT,
        Action.RECHARGE,
        "the new revision asks for more than the ledger holds for it",
    ),
    Rule(
        "run-failure-look",
        lambda s: _fresh_failure(s) and not s.confirmed,
        Action.INQUIRE,
        "a failure is counted only by the agent's present word",
    ),
    Rule(
        "run-failure",
        _fresh_failure,
        Action.RECORD_FAILURE,
        "it failed (a masked failure too, decisions §2.2)",
    ),
    Rule("run-backoff", lambda s: not s.retry_due, Action.BACKOFF_WAIT, "no retry before its time"),
    Rule(
        "run-ended-look",
        lambda s: _ended_well(s) and not s.confirmed,
        Action.INQUIRE,
        "an end is final, so it is asked for",
    ),
    Rule(
        "run-ended",
        _ended_well,
        Action.COMPLETE,
        "it exited 0 and its restart policy lets it rest (decisions §2.11)",
    ),
    Rule(
        "run-unseen",
        _unseen,
        Action.AWAIT_RUNTIME,
        "it ran, and its node's runtime is silent: what it runs goes on unseen",
    ),
    Rule(
        "run-starting",
        lambda s: _slow_start(s) and not s.start_overdue,
        Action.AWAIT_START,
        "it is starting",
    ),
    Rule(
        "run-stuck-look",
        lambda s: _slow_start(s) and not s.confirmed,
        Action.INQUIRE,
        "it should have started by now; is it still at it?",
    ),
    Rule(
        "run-stuck",
        _slow_start,
        Action.RECORD_FAILURE,
        "it did not start within the time of its type (defect C16)",
    ),
    Rule(
        "run-short-look",
        lambda s: s.ended_early and s.revision_matches and not s.confirmed,
        Action.INQUIRE,
        "a failure is counted only by the agent's present word",
    ),
    Rule(
        "run-short",
        lambda s: s.ended_early and s.revision_matches,
        Action.RECORD_FAILURE,
        "it stops by itself again and again: that has a budget like any other failure",
    ),
    Rule(
        "run-old-copy",
        lambda s: s.old_copy,
        Action.AWAIT_OLD_COPY,
        "somebody else may still write to an exclusive volume of it",
    ),
    Rule(
        "run-found-look",
        lambda s: s.found_here and _UNHEARD(s) and not s.confirmed,
        Action.INQUIRE,
        "a copy of it was there before: what runs as wished is not sent again",
    ),
    Rule(
        "run-first",
        lambda s: not s.sent_here and _UNHEARD(s),
        Action.APPLY_RUNNING,
        "it was never sent to this node",
    ),
    Rule(
        "run-missing-grace",
        lambda s: _UNHEARD(s) and s.within_missing_grace,
        Action.AWAIT_START,
        "the agent may not show it yet",
    ),
    Rule("run-guard", lambda s: not s.reapply_due, Action.REAPPLY_WAIT, "it was sent not long ago"),
    Rule(
        "run-look-first",
        lambda s: not s.confirmed,
        Action.INQUIRE,
        "before anything is sent again the agent is asked (decisions §2.3)",
    ),
    Rule("run-apply", _always, Action.APPLY_RUNNING, "the agent does not run this revision"),
)

REST_RULES: tuple[Rule, ...] = (
    Rule(
        "rest-nowhere",
        lambda s: _unassigned(s) and s.recorded,
        Action.NO_ACTION,
        "it rests, and no node has it",
    ),
    Rule(
        "rest-nowhere-settles",
        _unassigned,
        Action.SETTLE,
        "no node has it, and the record does not say that it rests",
    ),
    Rule("rest-node-gone", _GONE, Action.UNASSIGN, "its node left the cluster"),
    Rule("rest-node-silent", _SILENT, Action.AWAIT_NODE, "nothing needs to run, so nothing moves"),
    Rule(
        "rest-call-underway",
        lambda s: s.call_underway,
        Action.AWAIT_INTENT,
        "an unanswered call, or an earlier leader's, may still arrive",
    ),
    Rule("rest-poll", lambda s: s.poll_due, Action.INQUIRE, "it was told to stop; did it?"),
    Rule("rest-task", _task, Action.AWAIT_TASK, "the agent is at work on it"),
    Rule(
        "rest-settled",
        lambda s: _stays_at_rest(s) and s.recorded,
        Action.NO_ACTION,
        "it rests as wished",
    ),
    Rule(
        "rest-settles",
        _stays_at_rest,
        Action.SETTLE,
        "it rests, and the record does not say so yet",
    ),
    Rule(
        "rest-never-sent",
        lambda s: not s.sent_here and _UNHEARD(s),
        Action.SETTLE,
        "it was never sent, so it rests",
    ),
    Rule(
        "rest-guard", lambda s: not s.reapply_due, Action.REAPPLY_WAIT, "it was told not long ago"
    ),
    Rule(
        "rest-look-first",
        lambda s: not s.confirmed,
        Action.INQUIRE,
        "before anything is sent the agent is asked",
    ),
    Rule(
        "rest-stop",
        _always,
        Action.APPLY_STOPPED,
        "the agent still runs it, or means to start it",
    ),
)

WATCH_RULES: tuple[Rule, ...] = (
    Rule(
        "watch-nowhere",
        lambda s: _unassigned(s) or _GONE(s),
        Action.NO_ACTION,
        "no node has it, and without its spec it cannot be started",
    ),
    Rule(
        "watch-node-silent",
        _SILENT,
        Action.AWAIT_NODE,
        "without its spec it cannot be started elsewhere",
    ),
    Rule(
        "watch-call-underway",
        lambda s: s.call_underway,
        Action.AWAIT_INTENT,
        "an unanswered call, or an earlier leader's, may still arrive",
    ),
    Rule("watch-noted", lambda s: s.recorded, Action.NO_ACTION, "its record says what is seen"),
    Rule(
        "watch-look",
        lambda s: s.observed is not ObservedState.RUNNING and not s.confirmed,
        Action.INQUIRE,
        "what its agent says of it is asked for",
    ),
    Rule("watch-task", _task, Action.AWAIT_TASK, "the agent is at work on it"),
    Rule("watch-notes", _always, Action.SETTLE, "what is seen is written down, and no more done"),
)

RULES: dict[Outlook, tuple[Rule, ...]] = {
    Outlook.DELETE: DELETE_RULES,
    Outlook.RUN: RUN_RULES,
    Outlook.STOP: REST_RULES,
    Outlook.COMPLETED: REST_RULES,
    Outlook.HALTED: REST_RULES,
    Outlook.WATCHED: WATCH_RULES,
}


def decide(situation: Situation) -> Rule:
    """The first rule whose condition holds; there always is one."""
    return next(rule for rule in RULES[situation.outlook] if rule.when(situation))

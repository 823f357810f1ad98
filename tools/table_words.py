"""The words in which docs/decision-tables.md tells conditions and actions; see generate_tables.py.

A fact that is true or false has two phrases; one with several values has the phrase that goes
before them. What has no words here is told by its name in the code.
"""

from __future__ import annotations

from persys_core.drift.remedy import Facts
from persys_core.nodes.eviction import LostNode
from persys_core.nodes.leaving import LeavingFacts
from persys_core.reconcile.actions import Action
from persys_core.reconcile.situation import Outlook, Situation

__all__ = ["ACTIONS", "OUTLOOKS", "PHRASES"]

PHRASES: dict[type, dict[str, str | tuple[str, str]]] = {
    Situation: {
        "outlook": "the outlook is",
        "charge": "its charge is",
        "node": "its node is",
        "observed": "it is seen",
        "confirmed": ("its agent was just asked", "its agent was not just asked"),
        "revision_matches": ("the revision is the wished one", "the revision is another"),
        "task_in_flight": ("its agent is at work on it", "its agent is not at work on it"),
        "new_failure": ("an uncounted failure shows", "no uncounted failure shows"),
        "sent_here": ("it was sent to this node", "it was never sent to this node"),
        "found_here": (
            "a copy of it was there before it was assigned there",
            "no copy of it was there before",
        ),
        "call_underway": ("a call may still arrive", "no call may still arrive"),
        "retry_due": ("its retry is due", "its retry is not due"),
        "reapply_due": ("it may be sent again", "it may not be sent again yet"),
        "within_missing_grace": (
            "it was sent within the missing grace",
            "it was not sent within the missing grace",
        ),
        "start_overdue": ("its time to start is over", "its time to start is not over"),
        "pinned": ("its data ties it to its node", "no data ties it to its node"),
        "recorded": ("its record says so", "its record does not say so"),
        "delete_sent": ("a delete was sent lately", "no delete was sent lately"),
        "leaving": "its leaving is",
        "held": (
            "its lost node may still write to its exclusive volume",
            "its lost node holds no exclusive volume of it",
        ),
        "uncallable": (
            "its node beats, and its agent answered no call for the whole grace",
            "its agent can be called, or its node is silent",
        ),
        "old_copy": (
            "somebody else may still write to its volume",
            "nobody else writes to its volumes",
        ),
        "poll_due": ("an open call is to be asked about", "no open call is to be asked about"),
        "starting": ("it is just being started", "it is not just being started"),
        "ended_early": (
            "it stopped by itself too soon, or never ran in its time",
            "it did not stop by itself too soon",
        ),
    },
    Facts: {
        "type": "the drift is",
        "policy": "the orphan policy is",
        "kind": "the orphan is",
        "age": "against the cluster's records it is",
        "sighted_enough": (
            "enough full listings in a row show it",
            "too few full listings in a row show it",
        ),
        "same_revision": (
            "its agent has the wished revision",
            "its agent does not have the wished revision",
        ),
        "wanted": (
            "it waits for a node, or rests",
            "it neither waits for a node nor rests",
        ),
        "has_room": (
            "the node takes work and has room for it",
            "the node takes no work or has no room for it",
        ),
        "sound_elsewhere": (
            "the copy on its own node is sound, that node is heard, and its data is not here",
            "the copy on its own node is not sound, that node is silent, or its data is here",
        ),
    },
    LeavingFacts: {
        "unwelcome": (
            "its node is drained, or bears a NoExecute taint that it does not tolerate",
            "its node is not drained, and bears no NoExecute taint that it does not tolerate",
        ),
        "others_first": (
            "it is a node-system workload, and ordinary ones have not left",
            "no ordinary workload must leave before it",
        ),
        "out_of_time": (
            "the deadline of a forced drain has passed",
            "no deadline of a forced drain has passed",
        ),
        "moves_enough": (
            "as many moves of the node are under way as may be",
            "more moves of the node may begin",
        ),
    },
    LostNode: {
        "mass_loss": (
            "more than half of the nodes fell silent within one lease",
            "the nodes did not fall silent together",
        ),
        "aftermath": (
            "they did until less than a lease ago",
            "they did not within the last lease",
        ),
        "released": ("its turn came before", "its turn did not come before"),
        "is_next": ("no other that waits was lost before it", "another was lost before it"),
        "pause_over": (
            "the last release is an interval ago",
            "the last release is less than an interval ago",
        ),
    },
}

OUTLOOKS: dict[Outlook, str] = {
    Outlook.DELETE: "the user wants it gone",
    Outlook.RUN: "it is to run",
    Outlook.STOP: "it is to rest",
    Outlook.COMPLETED: "it was to run, and ended well",
    Outlook.HALTED: "it was to run, and was given up",
    Outlook.WATCHED: "it was imported from an agent, and its spec is not known",
}

ACTIONS: dict[Action, str] = {
    Action.NO_ACTION: "nothing; it costs no write and no call",
    Action.SETTLE: "bring the record up to date",
    Action.FINALIZE_DELETE: "remove its records",
    Action.DELETE: "commit the intent, then tell the agent to remove it",
    Action.CONFIRM_DELETE: "ask the agent whether it is gone",
    Action.ABANDON_DELETE: "leave a tombstone on the node and remove the records",
    Action.ASSIGN: "find it a node",
    Action.RECHARGE: "raise its share of its node, or wait for room",
    Action.OUTGROW: "raise its share of its node or, without room, give that up for another node",
    Action.LEAVE: "move it, if another node takes it",
    Action.AWAIT_OLD_COPY: "wait until the old copy is confirmed gone",
    Action.UNASSIGN: "give the assignment back",
    Action.RESCHEDULE: "find it another node; the old one owes a delete (tombstone)",
    Action.AWAIT_NODE: "wait for the node",
    Action.AWAIT_INTENT: "wait for the deadline of a call that nobody waits for",
    Action.AWAIT_TASK: "wait for the agent",
    Action.AWAIT_START: "wait for its start",
    Action.AWAIT_RUNTIME: "wait until its node's runtime answers",
    Action.BACKOFF_WAIT: "wait for its retry",
    Action.REAPPLY_WAIT: "wait until it may be sent again",
    Action.INQUIRE: "ask the agent about this one workload",
    Action.APPLY_RUNNING: "commit the intent, then send it, to run",
    Action.TELL_AGAIN: "commit the intent, then send it, to go on running",
    Action.APPLY_STOPPED: "commit the intent, then send it, to stop",
    Action.RECORD_FAILURE: "count the failure: retry later, or give up",
    Action.COMPLETE: "record that it ended well, and have it rest",
}

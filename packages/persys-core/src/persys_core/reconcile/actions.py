"""The closed list of what a reconcile step can do. Names are those of the reference's metrics
where the meaning is the same."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Action"]


class Action(StrEnum):
    """One step for one workload."""

    NO_ACTION = "NoAction"
    """Observed equals desired and the record says so."""
    SETTLE = "Settle"
    """Observed equals desired; the record is brought up to date."""
    FINALIZE_DELETE = "FinalizeDelete"
    """Nothing of it is left on a node: remove its records."""
    DELETE = "Delete"
    """Tell the agent to remove it."""
    CONFIRM_DELETE = "ConfirmDelete"
    """Ask the agent whether it is gone."""
    ABANDON_DELETE = "AbandonDelete"
    """The node cannot confirm: leave a tombstone there and remove the records."""
    ASSIGN = "Assign"
    """Find it a node."""
    RECHARGE = "Recharge"
    """The node's ledger must hold more for it before the new revision may be sent."""
    LEAVE = "Relocate"
    """Its node is to be left (drain, NoExecute): move it if another node takes it."""
    AWAIT_OLD_COPY = "AwaitOldCopy"
    """An exclusive volume of it is not confirmed free: the old copy, or another workload."""
    UNASSIGN = "Unassign"
    """Its node left the cluster and nothing is to run: give the assignment back."""
    RESCHEDULE = "Reschedule"
    """Its node is lost: find it another one."""
    AWAIT_NODE = "AwaitFailover"
    """Its node is silent, or holds its data: wait for the node."""
    AWAIT_INTENT = "AwaitIntent"
    """A call that nobody waits for may still arrive: wait for its deadline."""
    AWAIT_TASK = "AwaitTask"
    """The agent is at work on it."""
    AWAIT_START = "AwaitStart"
    """It was sent and is starting."""
    BACKOFF_WAIT = "BackoffWait"
    """It failed; the next try is not due."""
    REAPPLY_WAIT = "ReapplyBackoffWait"
    """It was sent not long ago; it may not be sent again yet."""
    INQUIRE = "Investigate"
    """Ask the agent before anything is sent: the last word is too old or a mere hint."""
    APPLY_RUNNING = "ReapplyRunning"
    """Send it, to run."""
    APPLY_STOPPED = "ApplyStopped"
    """Send it, to stop."""
    RECORD_FAILURE = "RecordFailure"
    """It failed in a new way or anew: count it."""
    COMPLETE = "Complete"
    """It ended well and is not to be started again."""

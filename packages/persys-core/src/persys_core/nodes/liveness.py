"""Whether a node counts as alive, silent or lost.

Decided here: what a node's lease means for what is shown and for whether its work may move. Not
decided here: when a lease ends (the Liveness port), and how fast work is moved (``eviction``).

Time runs from the last sign of life, which is one lease before the lease's end::

    heard ------ lease (3 intervals) ------> NotReady ------> grace over: lost, work may move

A new leader counts every node as heard at its own start (field report N02), so nothing is lost
earlier than a full grace after a take-over. While this process is slow itself, its lag is added
to both deadlines (field report N08): what it did not hear may be waiting at its own door.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from attrs import field, frozen

from persys_core.model.node import OperatorIntent
from persys_core.model.states import NodeStatus

__all__ = ["LivenessPolicy", "NodeCondition", "NodeHealth", "judge_node", "lost_at"]

_COMES_BACK_WITHIN = timedelta(seconds=60)


class NodeCondition(StrEnum):
    """A node as decisions see it."""

    READY = "ready"
    NOT_READY = "not_ready"
    """Silent for longer than its lease: nothing new goes there, nothing moves yet."""
    LOST = "lost"
    """Silent for longer than the grace: its work may move."""
    GONE = "gone"
    """It has no record any more: it left the cluster. Never the verdict on an existing node."""


@frozen
class LivenessPolicy:
    """The three durations; see the module.

    ``unavailable_grace`` must not be shorter than the lease, else work would move away from nodes
    that still count as alive; ValueError says so in the settings' names.
    """

    heartbeat_interval: timedelta = timedelta(seconds=10)
    lease_intervals: int = 3
    unavailable_grace: timedelta = field(default=timedelta(minutes=3))

    def __attrs_post_init__(self) -> None:
        if self.heartbeat_interval <= timedelta(0) or self.lease_intervals < 1:
            raise ValueError(
                f"the heartbeat interval is {self.heartbeat_interval} and a lease"
                f" {self.lease_intervals} of it; SCHEDULER_HEARTBEAT_INTERVAL must be above zero"
            )
        if self.unavailable_grace < self.lease:
            raise ValueError(
                f"SCHEDULER_NODE_UNAVAILABLE_GRACE is {_seconds(self.unavailable_grace)}, shorter"
                f" than {self.lease_intervals} x SCHEDULER_HEARTBEAT_INTERVAL"
                f" ({_seconds(self.heartbeat_interval)}); give at least {_seconds(self.lease)},"
                " or a shorter heartbeat interval"
            )

    @property
    def lease(self) -> timedelta:
        """How long one heartbeat keeps a node alive."""
        return self.heartbeat_interval * self.lease_intervals

    @property
    def returning_lease(self) -> timedelta:
        """How long a node counts as alive whose agent was refused and tries again later: a lease
        beyond the longest backoff of an agent, 45 s (30 s and half of it as jitter)."""
        return self.lease + _COMES_BACK_WITHIN


@frozen
class NodeHealth:
    """The verdict: for decisions, for views, and why, in a sentence for people."""

    condition: NodeCondition
    status: NodeStatus
    reason: str


def lost_at(
    expired_since: datetime, policy: LivenessPolicy, lag: timedelta = timedelta(0)
) -> datetime:
    """When a node whose lease ended at ``expired_since`` is lost."""
    return expired_since - policy.lease + policy.unavailable_grace + lag


def judge_node(
    *,
    alive: bool,
    expired_since: datetime | None,
    intent: OperatorIntent,
    now: datetime,
    policy: LivenessPolicy,
    lag: timedelta = timedelta(0),
) -> NodeHealth:
    """The health of a registered node at ``now``.

    ``alive`` and ``expired_since`` are the Liveness port's; ``lag``: this process's own (zero
    while it is small). Liveness comes first, then the operator's intent.
    """
    if alive or (expired_since is not None and now < expired_since + lag):
        return _present(intent)
    if expired_since is None:
        # Silent for an unknown time is no reason to move anything.
        return NodeHealth(
            NodeCondition.NOT_READY, NodeStatus.NOT_READY, "heartbeat expired: never heard here"
        )
    return _silent(expired_since, now, policy, lag)


def _present(intent: OperatorIntent) -> NodeHealth:
    because = f": {intent.reason}" if intent.reason else ""
    by = f" by {intent.changed_by}" if intent.changed_by else ""
    if intent.draining:
        return NodeHealth(NodeCondition.READY, NodeStatus.DRAINING, f"draining{by}{because}")
    if intent.cordoned:
        return NodeHealth(NodeCondition.READY, NodeStatus.READY, f"cordoned{by}{because}")
    return NodeHealth(NodeCondition.READY, NodeStatus.READY, "heartbeat received")


def _silent(
    expired_since: datetime, now: datetime, policy: LivenessPolicy, lag: timedelta
) -> NodeHealth:
    heard = f"heartbeat expired: last heartbeat {_instant(expired_since - policy.lease)}"
    moves_at = lost_at(expired_since, policy, lag)
    if now >= moves_at:
        return NodeHealth(
            NodeCondition.LOST,
            NodeStatus.NOT_READY,
            f"{heard}; its workloads may move since {_instant(moves_at)}",
        )
    return NodeHealth(
        NodeCondition.NOT_READY,
        NodeStatus.NOT_READY,
        f"{heard}; its workloads may move at {_instant(moves_at)}",
    )


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g}s"

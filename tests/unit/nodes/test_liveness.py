from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from persys_core.model.node import OperatorIntent
from persys_core.model.states import NodeStatus
from persys_core.nodes.liveness import (
    LivenessPolicy,
    NodeCondition,
    NodeHealth,
    judge_node,
    lost_at,
)

HEARD = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = LivenessPolicy()
ENDED = HEARD + POLICY.lease


def judge(silent_for: float, *, lag: float = 0, intent: OperatorIntent | None = None) -> NodeHealth:
    """The health of a node that was last heard ``silent_for`` seconds ago."""
    now = HEARD + timedelta(seconds=silent_for)
    alive = now < ENDED
    return judge_node(
        alive=alive,
        expired_since=None if alive else ENDED,
        intent=intent or OperatorIntent(),
        now=now,
        policy=POLICY,
        lag=timedelta(seconds=lag),
    )


@pytest.mark.parametrize(
    ("silent_for", "condition", "status"),
    [
        (0, NodeCondition.READY, NodeStatus.READY),
        (29.9, NodeCondition.READY, NodeStatus.READY),
        (30, NodeCondition.NOT_READY, NodeStatus.NOT_READY),
        (179.9, NodeCondition.NOT_READY, NodeStatus.NOT_READY),
        (180, NodeCondition.LOST, NodeStatus.NOT_READY),
        (10**6, NodeCondition.LOST, NodeStatus.NOT_READY),
    ],
)
def test_silence_is_judged_by_lease_and_grace(
    silent_for: float, condition: NodeCondition, status: NodeStatus
) -> None:
    """NotReady when three intervals pass, lost three minutes after the last sign of life (N01)."""
    health = judge(silent_for)
    assert (health.condition, health.status) == (condition, status)


def test_a_new_leader_gives_every_node_a_whole_grace() -> None:
    """The lease that begins at a take-over is what the grace counts from (N02)."""
    takeover = HEARD + timedelta(minutes=2, seconds=50)
    ends = takeover + POLICY.lease
    assert lost_at(ends, POLICY) == takeover + POLICY.unavailable_grace


def test_own_lag_is_added_to_both_deadlines() -> None:
    """A process that was stalled for 5 s declares nobody dead on that account (N08)."""
    assert judge(34.9, lag=5).condition is NodeCondition.READY
    assert judge(35, lag=5).condition is NodeCondition.NOT_READY
    assert judge(184.9, lag=5).condition is NodeCondition.NOT_READY
    assert judge(185, lag=5).condition is NodeCondition.LOST


def test_silence_of_unknown_length_moves_nothing() -> None:
    """A node of which nothing is known is not ready, and never lost."""
    health = judge_node(
        alive=False,
        expired_since=None,
        intent=OperatorIntent(),
        now=HEARD + timedelta(days=9),
        policy=POLICY,
    )
    assert health.condition is NodeCondition.NOT_READY


def test_the_operators_intent_shows_on_a_live_node_only() -> None:
    """A draining node that falls silent is NotReady; when it is back it is still draining (D01)."""
    draining = OperatorIntent(draining=True, reason="new kernel", changed_by="ann")
    assert judge(0, intent=draining).status is NodeStatus.DRAINING
    assert judge(0, intent=draining).reason == "draining by ann: new kernel"
    assert judge(60, intent=draining).status is NodeStatus.NOT_READY
    cordoned = judge(0, intent=OperatorIntent(cordoned=True))
    assert (cordoned.status, cordoned.reason) == (NodeStatus.READY, "cordoned")


def test_reasons_name_the_last_heartbeat_and_what_follows() -> None:
    """People read when a node was last heard and when its work may move."""
    assert judge(60).reason == (
        "heartbeat expired: last heartbeat 2026-01-01T00:00:00+00:00;"
        " its workloads may move at 2026-01-01T00:03:00+00:00"
    )
    assert "may move since" in judge(300).reason


def test_a_grace_shorter_than_the_lease_is_refused() -> None:
    """Work must not move from nodes that count as alive; the error names both settings."""
    with pytest.raises(ValueError, match=r"UNAVAILABLE_GRACE is 29s.*HEARTBEAT_INTERVAL.*30s"):
        LivenessPolicy(unavailable_grace=timedelta(seconds=29))
    assert LivenessPolicy(unavailable_grace=timedelta(seconds=30)).lease == timedelta(seconds=30)


def test_an_interval_of_zero_is_refused() -> None:
    """Without an interval there is no lease."""
    with pytest.raises(ValueError, match="SCHEDULER_HEARTBEAT_INTERVAL"):
        LivenessPolicy(heartbeat_interval=timedelta(0))

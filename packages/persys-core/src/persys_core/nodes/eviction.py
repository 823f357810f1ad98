"""How fast work may move away from lost nodes, and when not at all.

Decided here: from which lost nodes work may move at an instant (decisions §3, liveness; field
report N01). Nodes are released one by one, the longest lost first. When more than half of the
nodes that were there fell silent within one lease of each other, the fault is more likely the
network's or ours than theirs: nothing moves until enough of them are back, and one lease more,
since the others are on their way (agents that waited come back one by one). Not decided here: which
nodes are lost (``liveness``), and where work goes (placement).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from attrs import frozen

from persys_core.model.ids import NodeId

__all__ = [
    "EVICTION_RULES",
    "Eviction",
    "EvictionPlan",
    "EvictionPolicy",
    "EvictionRule",
    "EvictionState",
    "LostNode",
    "is_mass_loss",
    "plan_evictions",
]


@frozen
class EvictionPolicy:
    """``window``: the node lease. ``interval``: at most one more node in this time.

    Nothing moves for one ``window`` after a mass loss.

    ``mass_minimum``: fewer silent nodes than this are never a mass loss.
    """

    window: timedelta = timedelta(seconds=30)
    interval: timedelta = timedelta(seconds=10)
    mass_minimum: int = 3


@frozen
class EvictionState:
    """What one pass hands to the next; a new leader begins with an empty one."""

    released: frozenset[NodeId] = frozenset()
    last_release_at: datetime | None = None
    """When the last release was carried out, or last seen not to be."""
    mass_loss: bool = False
    resumes_at: datetime | None = None
    """When work may move again after the last mass loss."""


class Eviction(StrEnum):
    """What becomes of the work of a lost node."""

    HELD = "held"
    """Nothing moves from any node."""
    WAITS = "waits"
    """It moves later; others go first."""
    MOVES = "moves"


@frozen
class LostNode:
    """What decides about one lost node."""

    mass_loss: bool
    """Most nodes fell silent together."""
    aftermath: bool
    """They did, and enough of them are back since less than a lease."""
    released: bool
    """Its turn has come before, and it was not heard since."""
    is_next: bool
    """None that waits was lost before it."""
    pause_over: bool
    """The last release was carried out an interval ago."""


@frozen
class EvictionRule:
    """One row: under which condition which verdict, and why, in a sentence for people."""

    name: str
    when: Callable[[LostNode], bool]
    verdict: Eviction
    because: str


EVICTION_RULES: tuple[EvictionRule, ...] = (
    EvictionRule(
        "mass-loss",
        lambda n: n.mass_loss,
        Eviction.HELD,
        "the fault is more likely the network's or ours than theirs (field report N01)",
    ),
    EvictionRule(
        "aftermath",
        lambda n: n.aftermath,
        Eviction.WAITS,
        "what was cut off together comes back one by one, and this one may be next",
    ),
    EvictionRule(
        "released", lambda n: n.released, Eviction.MOVES, "its turn came, and it is still silent"
    ),
    EvictionRule("in-turn", lambda n: not n.is_next, Eviction.WAITS, "the longest lost goes first"),
    EvictionRule(
        "pause",
        lambda n: not n.pause_over,
        Eviction.WAITS,
        "one node at a time, so that a storm stays small and may end by itself",
    ),
    EvictionRule("release", lambda _: True, Eviction.MOVES, "it is its turn"),
)


@frozen
class EvictionPlan:
    """From which nodes work may move now, and what to tell.

    ``mass_loss_began`` and ``mass_loss_ended`` are true once per loss (event MassNodeLoss).
    ``next_at``: when one more node may be released; None where none waits.
    """

    state: EvictionState
    may_move: frozenset[NodeId]
    mass_loss_began: bool = False
    mass_loss_ended: bool = False
    next_at: datetime | None = None


def is_mass_loss(
    total: int, silent_since: Mapping[NodeId, datetime], policy: EvictionPolicy
) -> bool:
    """Whether more than half of the nodes fell silent within one window of each other.

    ``total``: all registered nodes. Those that were silent before the window are no part of the
    half: a cluster that lost most of its nodes long ago is still protected.
    """
    ends = sorted(silent_since.values())
    first = 0
    for last, end in enumerate(ends):
        while end - ends[first] > policy.window:
            first += 1
        together = last - first + 1
        if together >= policy.mass_minimum and 2 * together > total - first:
            return True
    return False


def plan_evictions(
    state: EvictionState,
    *,
    total: int,
    silent_since: Mapping[NodeId, datetime],
    lost: Iterable[NodeId],
    policy: EvictionPolicy,
    now: datetime,
    under_way: bool = False,
) -> EvictionPlan:
    """From which nodes work may move at ``now``.

    ``silent_since``: when the lease of each silent node ended. ``lost``: those of them whose
    grace is over and that have work to move. A node that was released stays so until it is heard
    again. ``plan.state`` goes into the next call.

    ``under_way``: the last release is not carried out yet. The pause begins at its end: a store
    that answers late would otherwise let the work of many nodes leave at the same moment.
    """
    released = state.released & silent_since.keys()
    lost = frozenset(lost)
    waiting = sorted(lost - released, key=lambda node: (silent_since[node], node))
    mass_loss = is_mass_loss(total, silent_since, policy)
    resumes_at = now + policy.window if mass_loss else state.resumes_at
    carried_out_at = now if under_way else state.last_release_at
    ready_at = carried_out_at + policy.interval if carried_out_at else now

    def moves(node: NodeId) -> bool:
        facts = LostNode(
            mass_loss=mass_loss,
            aftermath=resumes_at is not None and now < resumes_at,
            released=node in released,
            is_next=[node] == waiting[:1],
            pause_over=now >= ready_at,
        )
        return _judge(facts) is Eviction.MOVES

    may_move = frozenset(node for node in released | lost if moves(node))
    if may_move - released:
        ready_at = now + policy.interval
    left = (released | lost) - may_move
    return EvictionPlan(
        EvictionState(
            released | may_move,
            now if may_move - released else carried_out_at,
            mass_loss,
            resumes_at,
        ),
        may_move,
        mass_loss_began=mass_loss and not state.mass_loss,
        mass_loss_ended=state.mass_loss and not mass_loss,
        next_at=max(ready_at, resumes_at or ready_at) if left and not mass_loss else None,
    )


def _judge(node: LostNode) -> Eviction:
    return next(rule.verdict for rule in EVICTION_RULES if rule.when(node))

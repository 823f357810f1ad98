"""How fast work may move away from lost nodes, and when not at all.

Decided here: from which lost nodes work may move at an instant (decisions §3, liveness; field
report N01). Nodes are released one by one, the longest lost first. When more than half of the
nodes that were there fell silent within one lease of each other, the fault is more likely the
network's or ours than theirs: nothing moves until enough of them are back. Not decided here:
which nodes are lost (``liveness``), and where work goes (placement).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from attrs import evolve, frozen

from persys_core.model.ids import NodeId

__all__ = ["EvictionPlan", "EvictionPolicy", "EvictionState", "is_mass_loss", "plan_evictions"]


@frozen
class EvictionPolicy:
    """``window``: the node lease. ``interval``: at most one more node in this time.

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
    mass_loss: bool = False


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
) -> EvictionPlan:
    """From which nodes work may move at ``now``.

    ``silent_since``: when the lease of each silent node ended. ``lost``: those of them whose
    grace is over and that have work to move. A node that was released stays so until it is heard
    again. ``plan.state`` goes into the next call.
    """
    silent = EvictionState(
        state.released & silent_since.keys(), state.last_release_at, state.mass_loss
    )
    if is_mass_loss(total, silent_since, policy):
        frozen_state = evolve(silent, mass_loss=True)
        return EvictionPlan(frozen_state, frozenset(), mass_loss_began=not state.mass_loss)
    waiting = sorted(set(lost) - silent.released, key=lambda node: (silent_since[node], node))
    return _release_one(evolve(silent, mass_loss=False), waiting, policy, now, state.mass_loss)


def _release_one(
    state: EvictionState,
    waiting: list[NodeId],
    policy: EvictionPolicy,
    now: datetime,
    mass_loss_ended: bool,
) -> EvictionPlan:
    ready_at = state.last_release_at + policy.interval if state.last_release_at else now
    if waiting and now >= ready_at:
        state = evolve(state, released=state.released | {waiting.pop(0)}, last_release_at=now)
        ready_at = now + policy.interval
    return EvictionPlan(
        state,
        state.released,
        mass_loss_ended=mass_loss_ended,
        next_at=ready_at if waiting else None,
    )

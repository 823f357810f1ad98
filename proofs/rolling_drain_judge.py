"""The judge of the rolling drain: what must hold, and by how much it did.

Decided here, from what people asked for (``Asked``), what was drained (``Drained``) and what the
machines did (``copies``), never from the scheduler's records:

* A workload that starts its replacement first is never without a running copy, from its first
  start until somebody deletes it: the bound is 0.
* One that holds an exclusive volume stops first, and is without a copy no longer than
  ``Bounds.gap``: the agent's longest pickup, creation and start, and ``POLLS`` looks of the
  scheduler at the old and the new copy.
* Nothing runs twice: an exclusive one never does; others only on their way off a node that is being
  drained, one copy there and one elsewhere, for at most ``Bounds.overlap``.
* Nothing is lost: what was asked for comes to run within ``Bounds.settle`` and runs once at the
  end; what was deleted runs nowhere ``Bounds.settle`` later.
* A node that was told to be empty is: nothing runs on it until it is taken back into service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from attrs import define, field, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.reconcile.situation import Timing
from persys_core.sim.agent_settings import AgentSettings
from proofs.copies import Copy, longest_gap, moves, overlaps

__all__ = ["Asked", "Bounds", "Drained", "Verdict", "judge"]

POLLS = 4
"""Intervals of looks until the scheduler has seen an end or a beginning and acted on it: the old
copy is looked at every two, and one more comes before each call."""


@frozen
class Asked:
    """One workload as people asked for it; ``deleted_at`` is None where nobody deleted it."""

    id: WorkloadId
    at: datetime
    exclusive: bool = False
    deleted_at: datetime | None = None


@frozen
class Drained:
    """One node's turn: ordered, told to be empty, taken back into service."""

    node_id: NodeId
    ordered_at: datetime
    empty_at: datetime
    returned_at: datetime


@frozen
class Bounds:
    """How long things may take; computed from what the agents and the scheduler need."""

    gap: timedelta
    overlap: timedelta
    settle: timedelta = timedelta(seconds=60)

    @classmethod
    def of(cls, agent: AgentSettings, timing: Timing) -> Bounds:
        """The bounds for machines of this speed."""
        polls = timing.poll_interval * POLLS
        starting = agent.pickup.most + agent.create.most + agent.start.most
        ending = agent.pickup.most + agent.delete.most
        return cls(gap=starting + polls, overlap=ending + polls)


@define
class Verdict:
    """What was found. ``violations`` are sentences; all else is figures."""

    moves: int = 0
    gap_start_first: timedelta = timedelta(0)
    gap_stop_first: timedelta = timedelta(0)
    overlap: timedelta = timedelta(0)
    longest_start: timedelta = timedelta(0)
    duplicates: int = 0
    lost: int = 0
    violations: list[str] = field(factory=list)


def judge(
    asked: Sequence[Asked],
    drains: Sequence[Drained],
    copies: Mapping[WorkloadId, Sequence[Copy]],
    bounds: Bounds,
    now: datetime,
) -> Verdict:
    """Judge a run that ended at ``now``, after everything had time to settle."""
    verdict = Verdict()
    turns = {turn.node_id: turn for turn in drains}
    for wish in asked:
        runs = copies.get(wish.id, ())
        _judge_presence(verdict, wish, runs, bounds, now)
        if runs:
            verdict.moves += moves(runs)
            _judge_gap(verdict, wish, runs, bounds, now)
            _judge_twice(verdict, wish, runs, turns, bounds, now)
    verdict.violations.extend(_on_empty_nodes(turns, copies, now))
    return verdict


def _judge_presence(
    verdict: Verdict, wish: Asked, runs: Sequence[Copy], bounds: Bounds, now: datetime
) -> None:
    due = wish.at + bounds.settle
    if wish.deleted_at is not None:
        late = wish.deleted_at + bounds.settle
        left = [copy.node_id for copy in runs if copy.until(now) > late]
        if left:
            verdict.duplicates += len(left)
            verdict.violations.append(f"{wish.id} was deleted and still ran on {', '.join(left)}")
        if wish.deleted_at < due:
            return
    if not runs or runs[0].began > due:
        verdict.lost += 1
        verdict.violations.append(f"{wish.id} was asked for and did not come to run in time")
        return
    verdict.longest_start = max(verdict.longest_start, runs[0].began - wish.at)
    at_the_end = [copy.node_id for copy in runs if copy.ended is None]
    if wish.deleted_at is None and len(at_the_end) != 1:
        verdict.lost += not at_the_end
        verdict.violations.append(f"{wish.id} runs on {at_the_end or 'no node'} at the end")


def _judge_gap(
    verdict: Verdict, wish: Asked, runs: Sequence[Copy], bounds: Bounds, now: datetime
) -> None:
    end = wish.deleted_at or now
    if runs[0].began >= end:
        return
    gap = longest_gap(runs, end)
    bound = bounds.gap if wish.exclusive else timedelta(0)
    if wish.exclusive:
        verdict.gap_stop_first = max(verdict.gap_stop_first, gap)
    else:
        verdict.gap_start_first = max(verdict.gap_start_first, gap)
    if gap > bound:
        verdict.violations.append(
            f"{wish.id} had no copy for {gap.total_seconds():.3f} s; allowed are"
            f" {bound.total_seconds():.3f} s"
        )


def _judge_twice(
    verdict: Verdict,
    wish: Asked,
    runs: Sequence[Copy],
    turns: Mapping[NodeId, Drained],
    bounds: Bounds,
    now: datetime,
) -> None:
    for one, other, together in overlaps(runs, now):
        moving = not wish.exclusive and _is_move(one, other, turns, wish)
        if moving and together <= bounds.overlap:
            verdict.overlap = max(verdict.overlap, together)
            continue
        verdict.duplicates += 1
        verdict.violations.append(
            f"{wish.id} ran on {one.node_id} and {other.node_id} at once for"
            f" {together.total_seconds():.3f} s from {other.began:%H:%M:%S}"
        )


def _is_move(one: Copy, other: Copy, turns: Mapping[NodeId, Drained], wish: Asked) -> bool:
    """Whether the later copy began while the node of the earlier one was being left."""
    turn = turns.get(one.node_id)
    if turn is None or one.node_id == other.node_id:
        return False
    return turn.ordered_at <= other.began <= turn.returned_at


def _on_empty_nodes(
    turns: Mapping[NodeId, Drained], copies: Mapping[WorkloadId, Sequence[Copy]], now: datetime
) -> Iterator[str]:
    for copy in (copy for runs in copies.values() for copy in runs):
        turn = turns.get(copy.node_id)
        if turn and copy.began < turn.returned_at and copy.until(now) > turn.empty_at:
            yield f"{copy.workload_id} ran on {copy.node_id}, which was told to be empty"

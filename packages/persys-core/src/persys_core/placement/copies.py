"""Placing a workload of which a copy runs somewhere although no record says so.

Decided here: it gets the node of that copy, or none: a second start elsewhere would make two of it
for ever. Where several nodes run it the first by id gets it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import evolve

from persys_core.model.event import capped
from persys_core.model.ids import NodeId
from persys_core.placement.explain import (
    Explanation,
    NodeRejection,
    ReasonCode,
    ReasonTally,
    Verdict,
)
from persys_core.placement.placer import Placed, Placer
from persys_core.placement.request import PlacementRequest

__all__ = ["explain_at_copy", "place_at_copy", "too_early"]


def place_at_copy(
    placer: Placer, request: PlacementRequest, copies: Sequence[NodeId], now: datetime
) -> Placed | Explanation:
    """The node of the first of ``copies`` (ordered, not empty), or why it cannot take it."""
    rejection = placer.rejection(request, copies[0], now)
    if rejection is not None:
        return _refused(rejection, copies)
    found = placer.place(_only(request, copies[0]), now)
    assert isinstance(found, Placed), "this is a bug: a node that turns nothing away takes it"
    return evolve(found, found_copy=_bound(copies))


def explain_at_copy(
    placer: Placer,
    request: PlacementRequest,
    copies: Sequence[NodeId],
    now: datetime,
    max_examples: int,
) -> Explanation:
    """The same with every node's part in it."""
    found = place_at_copy(placer, request, copies, now)
    if isinstance(found, Explanation):
        return found
    full = placer.explain(_only(request, copies[0]), now, max_examples)
    return evolve(full, summary=found.reason, reasons=tuple(map(_elsewhere, full.reasons)))


def too_early(until: datetime) -> Explanation:
    """Not every node has said yet what it runs, since the records began anew just now."""
    text = (
        "the records began anew just now: what no node is known to run is placed from"
        f" {until.isoformat(timespec='seconds')} on, once the agents are back"
    )
    return Explanation(
        Verdict.UNSCHEDULABLE,
        text,
        reasons=(ReasonTally(ReasonCode.NOT_LISTED, 0, text),),
        next_try_at=until,
        next_step="nothing: it goes on by itself, at once where a node turns out to run it",
    )


def _only(request: PlacementRequest, node_id: NodeId) -> PlacementRequest:
    return evolve(request, pinned_to=node_id)


def _elsewhere(tally: ReasonTally) -> ReasonTally:
    """What was turned away for not being the node of the copy, in its own words."""
    if tally.code is not ReasonCode.LOCAL_DATA:
        return tally
    code, detail = ReasonCode.ORPHAN_COPY, "a copy of it runs on another node"
    examples = tuple(evolve(each, code=code, detail=detail) for each in tally.examples)
    return evolve(tally, code=code, detail=detail, examples=examples)


def _bound(copies: Sequence[NodeId]) -> str:
    text = f"a copy of it runs on {copies[0]}, which no record explains: it is bound to that node"
    return capped(text + _others(copies))


def _refused(rejection: NodeRejection, copies: Sequence[NodeId]) -> Explanation:
    node_id = copies[0]
    text = capped(
        f"a copy of it runs on {node_id}, which no record explains; {node_id} cannot take it:"
        f" {_why(rejection)}; remove that copy or make room{_others(copies)}"
    )
    return Explanation(
        Verdict.UNSCHEDULABLE,
        text,
        nodes_considered=1,
        reasons=(ReasonTally(ReasonCode.ORPHAN_COPY, 1, text, examples=(rejection,)),),
        next_step=f"it goes on as soon as {node_id} can take it, or that copy is gone",
    )


def _why(rejection: NodeRejection) -> str:
    if not rejection.unit:
        return f"{rejection.code} {rejection.detail}".rstrip()
    name = rejection.detail or rejection.code
    return f"{name} (asked {rejection.asked}, {rejection.free} {rejection.unit} free)"


def _others(copies: Sequence[NodeId]) -> str:
    if len(copies) == 1:
        return ""
    return f"; another copy runs on {', '.join(copies[1:])}: remove it there"

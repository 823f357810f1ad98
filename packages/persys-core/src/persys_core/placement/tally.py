"""Counting rejections: every node under its first failing check, and the one-line summary.

Decided here: how reasons are counted, ordered and put into words. Pure arithmetic on a survey.
"""

from __future__ import annotations

from collections.abc import Iterable

from persys_core.model.ids import NodeId
from persys_core.model.resources import unit_of
from persys_core.placement.columns import IntArray, Mask
from persys_core.placement.explain import NodeRejection, ReasonCode, ReasonTally
from persys_core.placement.filters.base import Filter, NodeSet
from persys_core.placement.filters.capacity import capacity_code, rooms
from persys_core.placement.survey import Survey

__all__ = ["SUMMARY_BYTES", "count_rejections", "rejection_of", "summary_of"]

SUMMARY_BYTES = 1024
"""The longest summary, in bytes of UTF-8 (V02)."""

_NO_NODES = ReasonTally(ReasonCode.NO_NODES, 0, "no nodes are registered")


def count_rejections(survey: Survey, max_examples: int) -> tuple[ReasonTally, ...]:
    """Every infeasible node counted once, the most frequent reason first.

    Reasons of equal frequency stand in checking order. A fleet without nodes is a reason itself.
    """
    if not len(survey.fleet.table):
        return (_NO_NODES,)
    tallies = [
        _filter_tally(survey, rejected.filter, rejected.rows, rejected.summary, max_examples)
        for rejected in survey.prepared.rejected()
    ]
    left = survey.prepared.allowed
    for one in survey.filters:
        turned_away = left & one.rejected(NodeSet(survey.fleet))
        left = left & ~turned_away
        rows = turned_away.nonzero()[0]
        if len(rows):
            summary = one.summary(survey.fleet, rows)
            tallies.append(_filter_tally(survey, one, rows, summary, max_examples))
    tallies += _capacity_tallies(survey, left, max_examples)
    return tuple(sorted(_merged(tallies, max_examples), key=lambda tally: -tally.nodes))


def rejection_of(survey: Survey, node_id: NodeId) -> NodeRejection | None:
    """The first check that one node fails; ``None`` where it passes them all."""
    fleet = survey.fleet
    row = fleet.table.row_of(node_id)
    if row is None:
        return NodeRejection(node_id, ReasonCode.NODE_NOT_READY, "not registered")
    for rejected in survey.prepared.rejected():
        if row in rejected.rows:
            return NodeRejection(node_id, rejected.filter.code, rejected.filter.detail(fleet, row))
    for one in survey.filters:
        if one.rejected(NodeSet(fleet))[row]:
            return NodeRejection(node_id, one.code, one.detail(fleet, row))
    for dimension, asked, enough in rooms(survey.request, fleet.table, survey.amounts):
        if not enough[row]:
            free = int(survey.amounts.free_column(dimension).values[row])
            code, unit = capacity_code(dimension), unit_of(dimension)
            return NodeRejection(node_id, code, dimension, asked, free, unit)
    return None


def _filter_tally(
    survey: Survey, one: Filter, rows: IntArray, summary: str, max_examples: int
) -> ReasonTally:
    fleet = survey.fleet
    examples = tuple(
        NodeRejection(fleet.table.ids[row], one.code, one.detail(fleet, row))
        for row in rows[:max_examples].tolist()
    )
    return ReasonTally(one.code, len(rows), summary, examples=examples)


def _capacity_tallies(survey: Survey, left: Mask, max_examples: int) -> Iterable[ReasonTally]:
    for dimension, asked, enough in rooms(survey.request, survey.fleet.table, survey.amounts):
        short = left & ~enough
        left = left & enough
        rows = short.nonzero()[0]
        if len(rows):
            yield _capacity_tally(survey, dimension, asked, rows, max_examples)


def _capacity_tally(
    survey: Survey, dimension: str, asked: int, rows: IntArray, max_examples: int
) -> ReasonTally:
    code, unit = capacity_code(dimension), unit_of(dimension)
    free = survey.amounts.free_column(dimension).values[rows]
    ids = survey.fleet.table.ids
    examples = tuple(
        NodeRejection(ids[row], code, dimension, asked, amount, unit)
        for row, amount in zip(
            rows[:max_examples].tolist(), free[:max_examples].tolist(), strict=True
        )
    )
    return ReasonTally(code, len(rows), dimension, asked, int(free.max()), unit, examples)


def _merged(tallies: Iterable[ReasonTally], max_examples: int) -> Iterable[ReasonTally]:
    """One tally per code and detail: two filters, or pools of two meanings, may say the same."""
    merged: dict[tuple[ReasonCode, str], ReasonTally] = {}
    for tally in tallies:
        key = (tally.code, tally.detail)
        known = merged.get(key)
        merged[key] = tally if known is None else _sum(known, tally, max_examples)
    return merged.values()


def _sum(one: ReasonTally, other: ReasonTally, max_examples: int) -> ReasonTally:
    return ReasonTally(
        one.code,
        one.nodes + other.nodes,
        one.detail,
        max(one.asked, other.asked),
        max(one.free_max, other.free_max),
        one.unit,
        (one.examples + other.examples)[:max_examples],
    )


def summary_of(reasons: Iterable[ReasonTally], feasible: int, nodes: int) -> str:
    """``0/5 nodes: 3 cpu (asked 4000, at most 1500 millicores free), 2 selector disk=ssd``."""
    if not nodes:
        return f"0/0 nodes: {_NO_NODES.detail}"
    told = ", ".join(map(_phrase, reasons))
    return _shortened(f"{feasible}/{nodes} nodes: {told}" if told else f"{feasible}/{nodes} nodes")


def _phrase(tally: ReasonTally) -> str:
    if not tally.unit:
        return f"{tally.nodes} {tally.code} {tally.detail}".rstrip()
    name = tally.code.value if tally.detail == tally.code else f"{tally.code} {tally.detail}"
    numbers = f"asked {tally.asked}, at most {tally.free_max} {tally.unit} free"
    return f"{tally.nodes} {name} ({numbers})"


def _shortened(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= SUMMARY_BYTES:
        return text
    mark = " ..."
    return encoded[: SUMMARY_BYTES - len(mark)].decode(errors="ignore") + mark

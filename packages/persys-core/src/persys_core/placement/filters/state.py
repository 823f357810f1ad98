"""Nodes that take no new work at all: not alive, not listed, cordoned, draining."""

from __future__ import annotations

from attrs import frozen

from persys_core.placement.columns import IntArray, Mask
from persys_core.placement.explain import ReasonCode
from persys_core.placement.filters.base import NodeSet
from persys_core.placement.fleet import Fleet

__all__ = ["STATE_FILTERS", "StateFilter"]


@frozen
class StateFilter:
    """Turns a node away because of one of its flags, being set or being not set."""

    code: ReasonCode
    flag: str
    turns_away_when: bool

    def rejected(self, nodes: NodeSet) -> Mask:
        flagged = nodes.having(self.flag)
        return flagged if self.turns_away_when else ~flagged

    def detail(self, fleet: Fleet, row: int) -> str:
        return ""

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        return ""


STATE_FILTERS = (
    StateFilter(ReasonCode.NODE_NOT_READY, "alive", turns_away_when=False),
    StateFilter(ReasonCode.NOT_LISTED, "listed", turns_away_when=False),
    StateFilter(ReasonCode.CORDONED, "cordoned", turns_away_when=True),
    StateFilter(ReasonCode.DRAINING, "draining", turns_away_when=True),
)
"""They apply to every workload, in this order."""

"""What a filter is, and the nodes it looks at."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol

import numpy as np

from persys_core.model.ids import NodeId
from persys_core.placement.columns import IntArray, Mask, mask_of
from persys_core.placement.explain import ReasonCode
from persys_core.placement.fleet import Fleet

__all__ = ["ALL_ROWS", "Filter", "NodeSet"]

ALL_ROWS = None


class NodeSet:
    """Some rows of a fleet, or all of them; every mask has one element per row of the set."""

    def __init__(self, fleet: Fleet, rows: IntArray | None = ALL_ROWS) -> None:
        self.fleet = fleet
        self._rows = rows

    def having(self, name: str, value: Hashable = True) -> Mask:
        """Which nodes have this value of this property."""
        return self.among(self.fleet.properties.rows(name, value))

    def among(self, rows: Collection[int]) -> Mask:
        """Which nodes stand in these rows."""
        if self._rows is ALL_ROWS:
            return mask_of(rows, len(self.fleet.table.ids))
        return np.fromiter((row in rows for row in self._rows), np.bool_, len(self._rows))

    def named(self, node_ids: Collection[NodeId]) -> Mask:
        """Which nodes have one of these ids; an id that nobody has is no error."""
        rows = map(self.fleet.table.row_of, node_ids)
        return self.among({row for row in rows if row is not None})

    def none(self) -> Mask:
        """No node: a mask to start from."""
        count = len(self.fleet.table.ids) if self._rows is ALL_ROWS else len(self._rows)
        return np.zeros(count, np.bool_)


class Filter(Protocol):
    """One reason why nodes cannot take a workload, prepared for one workload or class of them.

    An implementation has a class method ``prepare`` that returns ``None`` where it does not
    apply at all.
    """

    @property
    def code(self) -> ReasonCode:
        """What it is counted under."""
        ...

    def rejected(self, nodes: NodeSet) -> Mask:
        """True for every node that it turns away."""
        ...

    def detail(self, fleet: Fleet, row: int) -> str:
        """Why it turned this one node away; empty where the code says all."""
        ...

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        """What to say of all the nodes that it turned away; empty where the code says all."""
        ...

"""Request classes: what the cached filters say of every node, brought up to date by changes.

Requests that differ in nothing the cached filters look at share one ``PreparedClass``. It holds
columns over all rows, and evaluates again only the rows whose properties changed since. Numbers
(free amounts, counts) are not in it: they change with every placement and are compared anew in
each decision, which costs less than to follow them.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from persys_core.placement.columns import FloatArray, IntArray, Mask
from persys_core.placement.filters import class_filters
from persys_core.placement.filters.base import ALL_ROWS, Filter, NodeSet
from persys_core.placement.filters.taints import TaintFilter
from persys_core.placement.fleet import Fleet
from persys_core.placement.request import PlacementRequest
from persys_core.placement.strategies import PENALTY

__all__ = ["ClassCache", "PreparedClass", "Rejected"]

_NO_NODE = 255
_MANY = 256
"""From this many changed rows on, evaluating all of them is the faster way."""


@frozen(eq=False)
class Rejected:
    """The rows that a filter turned away first, and what to say of them."""

    filter: Filter
    rows: IntArray
    summary: str


class PreparedClass:
    """What one class of requests makes of the nodes.

    ``allowed``: which rows pass every cached filter. ``penalties``: what each row's untolerated
    PreferNoSchedule taints take from its score, ``None`` where no row has any. ``domains``: the
    number of each row's value of the ``spread_by`` label, ``None`` without such a wish.
    """

    def __init__(self, fleet: Fleet, request: PlacementRequest) -> None:
        self._fleet = fleet
        self._filters = class_filters(request)
        self._taints = TaintFilter.prepare(request)
        self._spread_by = request.constraints.spread_by
        self._domain_numbers: dict[str, int] = {"": 0}
        self._first: NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._penalties: FloatArray = np.zeros(0)
        self._rejected: tuple[Rejected, ...] | None = None
        self._seen = -1
        self.allowed: Mask = np.zeros(0, np.bool_)
        self.penalties: FloatArray | None = None
        self.domains: IntArray | None = None

    def refresh(self) -> None:
        """Take in what changed in the fleet since the last time."""
        changes = self._fleet.changes
        if self._seen == changes.position:
            return
        rows = changes.since(self._seen) if self._seen >= 0 else ALL_ROWS
        self._seen = changes.position
        self._resize(len(self._fleet.table.ids))
        self._evaluate(ALL_ROWS if rows is ALL_ROWS or len(rows) > _MANY else rows)

    def rejected(self) -> tuple[Rejected, ...]:
        """The rows that each filter was the first to turn away, in checking order."""
        if self._rejected is None:
            self._rejected = tuple(
                Rejected(one, rows, one.summary(self._fleet, rows))
                for number, one in enumerate(self._filters, 1)
                if len(rows := np.flatnonzero(self._first == number))
            )
        return self._rejected

    def _resize(self, rows: int) -> None:
        more = rows - len(self._first)
        if more:
            self._first = np.append(self._first, np.zeros(more, np.uint8))
            self._penalties = np.append(self._penalties, np.zeros(more))
            if self._spread_by:
                known = self.domains if self.domains is not None else np.zeros(0, np.int64)
                self.domains = np.append(known, np.zeros(more, np.int64))

    def _evaluate(self, rows: IntArray | None) -> None:
        where = slice(None) if rows is ALL_ROWS else rows
        nodes = NodeSet(self._fleet, rows)
        self._first[where] = _first_rejections(self._filters, nodes)
        self._penalties[where] = self._taints.deterred(nodes) * PENALTY
        if self.domains is not None and rows is ALL_ROWS:
            self._domain_numbers = {"": 0}
            self._number_domains(range(len(self._first)))
        elif self.domains is not None and rows is not ALL_ROWS:
            self._number_domains(rows.tolist())
        self._rejected = None
        self.allowed = self._first == 0
        self.penalties = self._penalties if self._penalties.any() else None

    def _number_domains(self, rows: range | list[int]) -> None:
        assert self.domains is not None
        for row in rows:
            value = self._fleet.label(row, self._spread_by)
            number = self._domain_numbers.setdefault(value, len(self._domain_numbers))
            self.domains[row] = number


def _first_rejections(filters: tuple[Filter, ...], nodes: NodeSet) -> NDArray[np.uint8]:
    """Per node, the number of the first filter that turns it away, from 1; 0 where none does."""
    first = nodes.none().astype(np.uint8)
    for number, one in reversed(list(enumerate(filters, 1))):
        first[one.rejected(nodes)] = number
    first[~nodes.having("present")] = _NO_NODE
    return first


class ClassCache:
    """The classes in use; beyond ``limit`` the one that was used longest ago is dropped."""

    def __init__(self, fleet: Fleet, limit: int = 512) -> None:
        self._fleet = fleet
        self._limit = limit
        self._classes: OrderedDict[str, PreparedClass] = OrderedDict()

    def __len__(self) -> int:
        """How many classes are held."""
        return len(self._classes)

    def get(self, request: PlacementRequest) -> PreparedClass:
        """The class of a request, up to date."""
        prepared = self._classes.get(request.class_key)
        if prepared is None:
            prepared = self._add(request)
        else:
            self._classes.move_to_end(request.class_key)
        prepared.refresh()
        return prepared

    def _add(self, request: PlacementRequest) -> PreparedClass:
        prepared = self._classes[request.class_key] = PreparedClass(self._fleet, request)
        if len(self._classes) > self._limit:
            self._classes.popitem(last=False)
        return prepared

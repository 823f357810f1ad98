"""One look at the fleet for one request: who is feasible, and how good each of them is.

The survey is what a decision, a ranking and an explanation have in common. It reads the fleet and
changes nothing; it is valid until the fleet changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from persys_core.model.constraints import SchedulingStrategy
from persys_core.model.ids import NodeId
from persys_core.placement.columns import FloatArray, IntArray, Mask
from persys_core.placement.explain import Candidate
from persys_core.placement.filters import request_filters
from persys_core.placement.filters.base import Filter, NodeSet
from persys_core.placement.filters.capacity import rooms
from persys_core.placement.fleet import Fleet
from persys_core.placement.prepared import PreparedClass
from persys_core.placement.request import PlacementRequest
from persys_core.placement.strategies import PENALTY, TIE_WIDTH, Strategy
from persys_core.placement.table import Amounts, CreditedAmounts

__all__ = ["Ranking", "Survey"]


class Ranking(NamedTuple):
    """The feasible nodes as arrays side by side: row, score, workloads counted; and the most."""

    rows: IntArray
    scores: FloatArray
    counts: FloatArray
    busiest: float


class Survey:
    """A request and the fleet it looks at."""

    def __init__(
        self,
        fleet: Fleet,
        prepared: PreparedClass,
        request: PlacementRequest,
        excluding: Collection[NodeId],
        strategies: Mapping[SchedulingStrategy, Strategy],
    ) -> None:
        self.fleet = fleet
        self.prepared = prepared
        self.request = request
        self.strategy = strategies[request.constraints.strategy]
        self.filters: tuple[Filter, ...] = request_filters(request, fleet, excluding)
        self.amounts: Amounts = _amounts(fleet, request)

    def feasible(self) -> Mask:
        """Which rows pass every filter. To be read only: it may be a cached mask."""
        passing = self.prepared.allowed
        for one in self.filters:
            passing = passing & ~one.rejected(NodeSet(self.fleet))
        for _, _, enough in rooms(self.request, self.fleet.table, self.amounts):
            passing = passing & enough
        return passing

    def rank(self, feasible: Mask) -> Ranking | None:
        """The score of every feasible node; ``None`` where there is none."""
        rows = feasible.nonzero()[0]
        if not len(rows):
            return None
        counts = self._counts().take(rows)
        # argmax is twice as fast as max on float arrays.
        busiest = float(counts[counts.argmax()])
        scores = self.strategy.scores(self.amounts.headroom.values.take(rows), counts, busiest)
        self._penalise(rows, scores)
        return Ranking(rows, scores, counts, busiest)

    def best(self, ranking: Ranking) -> int:
        """The index in ``ranking`` of the node to take."""
        scores = ranking.scores
        best = int(scores.argmax())
        tied = scores >= scores[best] - TIE_WIDTH
        if np.count_nonzero(tied) == 1:
            return best
        indices = tied.nonzero()[0]
        chosen = self.strategy.ties.choose(
            ranking.rows[indices], self.request.workload_id, self.fleet.table
        )
        return int(indices[chosen])

    def parts(self, ranking: Ranking, index: int) -> dict[str, float]:
        """What the score at ``index`` is the sum of."""
        row = int(ranking.rows[index])
        parts = self.strategy.parts(
            self.amounts.cpu_headroom.values.item(row),
            self.amounts.memory_headroom.values.item(row),
            ranking.counts.item(index),
            ranking.busiest,
        )
        penalties = self.prepared.penalties
        if penalties is not None and penalties[row]:
            parts["prefer_no_schedule"] = -PENALTY
        if self.request.avoid_node and self.fleet.table.ids[row] == self.request.avoid_node:
            parts["avoid_node"] = -PENALTY
        return parts

    def candidates(self, ranking: Ranking | None, limit: int) -> list[Candidate]:
        """The best ``limit`` nodes in the order in which they would be taken."""
        found: list[Candidate] = []
        if ranking is None:
            return found
        left = ranking._replace(scores=ranking.scores.copy())
        for _ in range(min(limit, len(ranking.rows))):
            index = self.best(left)
            node_id = self.fleet.table.ids[int(ranking.rows[index])]
            score = ranking.scores.item(index)
            found.append(Candidate(node_id, score, self.parts(ranking, index)))
            left.scores[index] = -np.inf
        return found

    def _counts(self) -> FloatArray:
        """Workloads per node, or per domain of the ``spread_by`` label, wherever they may be."""
        counts = self.amounts.counts.values
        domains = self.prepared.domains
        if domains is None:
            return counts
        return np.bincount(domains, counts).astype(np.float64)[domains]

    def _penalise(self, rows: IntArray, scores: FloatArray) -> None:
        if self.prepared.penalties is not None:
            scores -= self.prepared.penalties.take(rows)
        if self.request.avoid_node:
            avoided = self.fleet.table.row_of(self.request.avoid_node)
            if avoided is not None:
                scores -= (rows == avoided) * PENALTY


def _amounts(fleet: Fleet, request: PlacementRequest) -> Amounts:
    if request.credit is not None:
        node_id, held = request.credit
        row = fleet.table.row_of(node_id)
        if row is not None:
            return CreditedAmounts(fleet.table, row, held)
    return fleet.table

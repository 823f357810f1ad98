"""The placer: one request and the present view of the fleet in, one node or the reasons out.

It decides and writes nothing. Whoever commits the decision holds the reservation and, when a
commit was lost to another, asks again with that node excluded. Exact: every node is filtered and
scored in every decision, none is sampled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TypeAlias

from attrs import field, frozen

from persys_core.model.constraints import SchedulingStrategy
from persys_core.model.counted import counted
from persys_core.model.ids import NodeId
from persys_core.placement.explain import (
    Candidate,
    Explanation,
    NodeRejection,
    ReasonTally,
    Verdict,
)
from persys_core.placement.fleet import Fleet
from persys_core.placement.prepared import ClassCache
from persys_core.placement.request import PlacementRequest
from persys_core.placement.reservations import Reservations
from persys_core.placement.strategies import DEFAULT_STRATEGIES, Strategy
from persys_core.placement.survey import Ranking, Survey
from persys_core.placement.tally import count_rejections, rejection_of, summary_of

__all__ = ["Decision", "Placed", "Placer", "Unschedulable"]


@frozen
class Placed:
    """The node to take. ``score`` is the sum of ``parts``; ``workload_count`` is the node's,
    before the new workload. ``found_copy``: what to say where a copy of it runs there already.
    """

    node_id: NodeId
    score: float
    parts: Mapping[str, float]
    workload_count: int
    found_copy: str = ""

    @property
    def reason(self) -> str:
        """The reason text that the assignment keeps."""
        return self.found_copy or (
            f"selected by placement score {self.score:.4f} (cpu/mem headroom + spread,"
            f" node has {counted(self.workload_count, 'workload')})"
        )


@frozen
class Unschedulable:
    """No node can take it. ``reasons`` counts every node once, without examples; ask
    ``Placer.explain`` for those. ``nodes`` is the size of the fleet.
    """

    request: PlacementRequest = field(repr=False)
    nodes: int
    reasons: tuple[ReasonTally, ...]

    @property
    def summary(self) -> str:
        """One line of at most 1 KiB, the most frequent reason first."""
        return summary_of(self.reasons, 0, self.nodes)


Decision: TypeAlias = Placed | Unschedulable


class Placer:
    """Chooses nodes by a view of the fleet that others keep up to date.

    ``now`` in all methods is the present instant, aware; reports of use and reservations end by
    it.
    """

    def __init__(
        self,
        fleet: Fleet,
        reservations: Reservations | None = None,
        strategies: Mapping[SchedulingStrategy, Strategy] = DEFAULT_STRATEGIES,
    ) -> None:
        self._fleet = fleet
        self._reservations = reservations or Reservations()
        self._strategies = strategies
        self._classes = ClassCache(fleet)

    def place(
        self, request: PlacementRequest, now: datetime, excluding: Collection[NodeId] = ()
    ) -> Decision:
        """The best node; ``excluding`` are nodes that were tried and lost in this attempt."""
        survey = self._survey(request, now, excluding)
        ranking = survey.rank(survey.feasible())
        if ranking is None:
            nodes = len(self._fleet.table)
            return Unschedulable(request, nodes, count_rejections(survey, max_examples=0))
        return self._placed(survey, ranking)

    def candidates(
        self,
        request: PlacementRequest,
        now: datetime,
        limit: int,
        excluding: Collection[NodeId] = (),
    ) -> list[Candidate]:
        """At most ``limit`` feasible nodes, the best first."""
        survey = self._survey(request, now, excluding)
        return survey.candidates(survey.rank(survey.feasible()), limit)

    def rejection(
        self, request: PlacementRequest, node_id: NodeId, now: datetime
    ) -> NodeRejection | None:
        """Why this one node cannot take it; ``None`` where it can."""
        return rejection_of(self._survey(request, now, ()), node_id)

    def explain(
        self,
        request: PlacementRequest,
        now: datetime,
        max_examples: int = 3,
        candidates: int = 5,
    ) -> Explanation:
        """Where the workload would go now and why, and why not to every other node.

        Since when, the next try and the store's revision are the caller's to add.
        """
        survey = self._survey(request, now, ())
        ranking = survey.rank(survey.feasible())
        reasons = count_rejections(survey, max_examples)
        nodes = len(self._fleet.table)
        feasible = 0 if ranking is None else len(ranking.rows)
        summary = summary_of(reasons, feasible, nodes)
        if ranking is None:
            return Explanation(
                Verdict.UNSCHEDULABLE, summary, nodes_considered=nodes, reasons=reasons
            )
        placed = self._placed(survey, ranking)
        return Explanation(
            Verdict.PLACED,
            placed.reason,
            node_id=placed.node_id,
            score=placed.score,
            score_parts=placed.parts,
            nodes_considered=nodes,
            nodes_feasible=feasible,
            reasons=reasons,
            candidates=tuple(survey.candidates(ranking, candidates)),
        )

    def _survey(
        self, request: PlacementRequest, now: datetime, excluding: Collection[NodeId]
    ) -> Survey:
        self._catch_up(now)
        prepared = self._classes.get(request)
        return Survey(self._fleet, prepared, request, excluding, self._strategies)

    def _catch_up(self, now: datetime) -> None:
        self._fleet.expire_usage(now)
        self._reservations.expire(now)
        for node_id in self._reservations.take_changed():
            self._fleet.set_in_flight(node_id, self._reservations.in_flight(node_id))

    def _placed(self, survey: Survey, ranking: Ranking) -> Placed:
        index = survey.best(ranking)
        row = int(ranking.rows[index])
        return Placed(
            self._fleet.table.ids[row],
            ranking.scores.item(index),
            survey.parts(ranking, index),
            int(self._fleet.table.counts.values[row]),
        )

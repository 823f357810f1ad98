"""Explaining: the same facts that decisions are made of, told to people (architecture §3.8).

Decided here: which verdict a workload's state is, and what is said to happen next. Whether a node
could take it is the placer's word.
"""

from __future__ import annotations

from datetime import datetime

from attrs import evolve, field, frozen

from persys_core.control.explaining_placed import ExplainingPlaced
from persys_core.control.node_views import NodeViews
from persys_core.control.placing import Placing
from persys_core.control.view import ClusterView
from persys_core.model.event import capped
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.explain import Explanation, Verdict
from persys_core.ports.clock import Clock
from persys_core.reconcile.situation import Outlook, outlook_of

__all__ = ["Explaining"]


@frozen
class Explaining:
    """Explains the workloads of one view."""

    _view: ClusterView
    _placing: Placing
    _node_views: NodeViews
    _clock: Clock
    _placed: ExplainingPlaced = field(init=False)

    @_placed.default
    def _make_placed(self) -> ExplainingPlaced:
        return ExplainingPlaced(self._view, self._placing, self._node_views, self._clock)

    def explain(
        self,
        workload: Workload,
        status: StatusRecord,
        assignment: Assignment | None,
        max_examples: int,
    ) -> Explanation:
        """Why, since when, and what happens next."""
        explanation = self._explain(workload, status, assignment, max_examples)
        reason = status.reason
        return evolve(
            explanation,
            since=reason.since if reason else status.updated_at,
            next_try_at=self._next_try(status),
            store_revision=self._view.revision,
        )

    def _next_try(self, status: StatusRecord) -> datetime | None:
        """The next instant at which something is tried; one that has passed is no promise."""
        reason = status.reason
        planned = status.retry.next_at or (reason.next_try_at if reason else None)
        return planned if planned is not None and planned > self._clock.now() else None

    def _explain(
        self,
        workload: Workload,
        status: StatusRecord,
        assignment: Assignment | None,
        max_examples: int,
    ) -> Explanation:
        outlook = outlook_of(workload, status)
        if outlook is Outlook.WATCHED:
            return self._watched(workload, assignment)
        if outlook is not Outlook.RUN:
            return self._rests(outlook, status, assignment)
        if assignment is None or assignment.released:
            return self._unplaced(workload, status, max_examples)
        return self._placed.explain(workload, status, assignment)

    def _watched(self, workload: Workload, assignment: Assignment | None) -> Explanation:
        assert workload.imported is not None, "this is a bug: only what was imported is watched"
        origin = workload.imported.node_id
        node = assignment.node_id if assignment else ""
        if not node or self._node_views.condition(node) is NodeCondition.GONE:
            return Explanation(
                Verdict.UNSCHEDULABLE,
                f"imported from {origin}, which is gone; its spec is not known",
                next_step="apply its spec to start it elsewhere, or delete it",
            )
        return Explanation(
            Verdict.PLACED,
            f"imported from {origin}; apply its spec to complete it",
            node,
            next_step="nothing: it is watched and left alone until its spec is applied",
        )

    def _rests(
        self, outlook: Outlook, status: StatusRecord, assignment: Assignment | None
    ) -> Explanation:
        node = assignment.node_id if assignment else ""
        match outlook:
            case Outlook.HALTED:
                why = status.reason.message if status.reason else "it failed for good"
                return Explanation(
                    Verdict.HALTED,
                    capped(why),
                    node,
                    next_step="nothing until a new revision is applied or it is retried by hand",
                )
            case Outlook.COMPLETED:
                return Explanation(
                    Verdict.NOT_NEEDED,
                    "it ended well and its restart policy lets it rest",
                    node,
                    next_step="nothing; a retry runs it once more",
                )
            case Outlook.DELETE:
                return Explanation(
                    Verdict.NOT_NEEDED,
                    "it is being deleted",
                    node,
                    next_step=f"the agent of {node} confirms, or a tombstone is left there"
                    if node
                    else "its records are removed",
                )
            case _:
                return Explanation(
                    Verdict.NOT_NEEDED,
                    "it is wanted stopped",
                    node,
                    next_step="nothing until it is started",
                )

    def _unplaced(self, workload: Workload, status: StatusRecord, max_examples: int) -> Explanation:
        found = self._placing.explain(workload, status, max_examples)
        if status.retry.next_at is not None and status.failure is not None:
            return evolve(
                found,
                verdict=Verdict.DEFERRED,
                summary=capped(status.failure.message),
                next_step="it is placed again when the next try is due",
            )
        if found.verdict is Verdict.PLACED:
            return evolve(
                found,
                verdict=Verdict.DEFERRED,
                summary=f"{found.nodes_feasible} of {found.nodes_considered} nodes could take it "
                "now",
                next_step="it is placed at the next look at what waits",
            )
        if found.next_step:
            return found
        return evolve(
            found,
            next_step="it is tried again as soon as capacity, a node, a label or a taint changes",
        )

"""Explaining: the same facts that decisions are made of, told to people (architecture §3.8).

Decided here: which verdict a workload's state is, and what is said to happen next. Whether a node
could take it is the placer's word.
"""

from __future__ import annotations

from datetime import datetime

from attrs import evolve, frozen

from persys_core.control.node_views import NodeViews
from persys_core.control.placing import GROWS_NEXT, Placing
from persys_core.control.view import ClusterView
from persys_core.model.event import capped
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.explain import Explanation, ReasonCode, ReasonTally, Verdict
from persys_core.placement.mismatch import HOW_TO_MOVE, mismatch
from persys_core.ports.clock import Clock
from persys_core.reconcile.situation import Outlook, outlook_of
from persys_core.volumes.claims import NEXT_STEPS

__all__ = ["Explaining"]

_NEXT_STEPS = {
    WorkloadStatus.SCHEDULED: "the node's agent is starting it",
    WorkloadStatus.UPDATING: "the new revision is being sent to the node's agent",
    WorkloadStatus.RUNNING: "nothing: it runs as wished",
}
_PINNED = {
    ReasonCode.LOCAL_DATA: "it goes on when its node is back; a retry that discards its local data"
    " (persysctl retry workload --discard-local) starts it elsewhere without",
    ReasonCode.VOLUME_HELD: "it goes on when its node is back; a fence of the node (persysctl node"
    " fence), once it is really cut off, lets it start elsewhere",
}


@frozen
class Explaining:
    """Explains the workloads of one view."""

    _view: ClusterView
    _placing: Placing
    _node_views: NodeViews
    _clock: Clock

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
        return self._placed(workload, status, assignment)

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
        return evolve(
            found,
            next_step="it is tried again as soon as capacity, a node, a label or a taint changes",
        )

    def _placed(
        self, workload: Workload, status: StatusRecord, assignment: Assignment
    ) -> Explanation:
        condition = self._node_views.condition(assignment.node_id)
        if condition is not NodeCondition.READY:
            return self._on_silent_node(status, assignment)
        if status.reason is not None and status.reason.code == ReasonCode.VOLUME_HELD:
            return Explanation(
                Verdict.DEFERRED,
                status.reason.message,
                assignment.node_id,
                reasons=(ReasonTally(ReasonCode.VOLUME_HELD, 1, status.reason.message),),
                next_step=NEXT_STEPS[ReasonCode.VOLUME_HELD],
            )
        if status.reason is not None and status.waits_to_grow:
            code = status.reason.code.removeprefix("resize:")
            known = ReasonCode(code) if code in set(ReasonCode) else ReasonCode.RESOURCE
            return Explanation(
                Verdict.DEFERRED,
                status.reason.message,
                assignment.node_id,
                reasons=(ReasonTally(known, 1, status.reason.message),),
                next_step=GROWS_NEXT,
            )
        if status.failure is not None and status.status is WorkloadStatus.RETRY_PENDING:
            return Explanation(
                Verdict.DEFERRED,
                capped(f"{status.failure.code}: {status.failure.message}"),
                assignment.node_id,
                next_step="it is tried again when the next try is due",
            )
        next_step = _NEXT_STEPS.get(status.status, "the reconciler looks at it")
        node = self._view.node(assignment.node_id)
        if node is not None and (found := mismatch(node.value, workload.spec)):
            return Explanation(
                Verdict.PLACED,
                capped(f"{assignment.reason}; it {found}"),
                assignment.node_id,
                next_step=f"{next_step}; {HOW_TO_MOVE}",
            )
        return Explanation(
            Verdict.PLACED, assignment.reason, assignment.node_id, next_step=next_step
        )

    def _on_silent_node(self, status: StatusRecord, assignment: Assignment) -> Explanation:
        health = self._node_views.health(assignment.node_id)
        text = capped(f"node {assignment.node_id}: {health.reason}")
        if status.reason is not None and status.reason.code in _PINNED:
            code = ReasonCode(status.reason.code)
            return Explanation(
                Verdict.PINNED,
                status.reason.message,
                assignment.node_id,
                reasons=(ReasonTally(code, 1, status.reason.message),),
                next_step=_PINNED[code],
            )
        return Explanation(
            Verdict.MOVING,
            text,
            assignment.node_id,
            next_step="it goes on there if the node comes back; else it moves when its node's turn"
            " comes, one lost node at a time",
        )

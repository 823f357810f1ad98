"""Steps that change where a workload belongs: assign, grow, move, give back."""

from __future__ import annotations

from persys_core.control.case import Case
from persys_core.control.term import AGAIN, Next, Term
from persys_core.model.event import EventType
from persys_core.model.states import WorkloadStatus
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement import ledger
from persys_core.placement.explain import Verdict
from persys_core.ports.cluster_store import Key
from persys_core.ports.observer import Metric
from persys_core.reconcile import transitions

__all__ = ["PlaceSteps"]


class PlaceSteps:
    """The steps of one term."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def assign(self, case: Case) -> Next:
        """Find a node, or more room on the present one; without it the workload is pending."""
        tx = case.transaction()
        tx, status, explanation = self._term.placing.into(tx, case.workload, case.status)
        tx = tx.put(Key.status(case.workload.id), status, case.stored_status)
        if not await self._term.commit(tx):
            return AGAIN
        if explanation is None:
            return AGAIN
        placed = explanation.verdict is Verdict.PLACED
        if placed or status is not case.status:
            self._term.placing.publish(case.workload.id, explanation.node_id, explanation)
        # What found no place is woken by free capacity, not by a timer of its own.
        return AGAIN if placed else None

    async def relocate(self, case: Case) -> Next:
        """Its node is lost or gone: another one gets it, and the old one owes a delete."""
        why = self._why(case)
        tx, status, explanation = self._term.placing.relocate(
            case.transaction(), case.workload, case.status, why
        )
        tx = tx.put(Key.status(case.workload.id), status, case.stored_status)
        if not await self._term.commit(tx):
            return AGAIN
        moved = explanation.verdict is Verdict.PLACED
        self._term.ports.observer.increment(
            Metric.EVICTIONS, {"result": "moved" if moved else "pending"}
        )
        self._term.events.publish(
            EventType.RESCHEDULED if moved else EventType.WORKLOAD_UNSCHEDULABLE,
            workload_id=case.workload.id,
            node_id=explanation.node_id,
            reason=why if moved else explanation.summary,
            code="" if moved else explanation.reasons[0].code,
            details={"previous_node": case.node_id},
        )
        return AGAIN if moved else None

    async def await_node(self, case: Case) -> Next:
        """Its node is silent. A pinned workload says that it waits for its data."""
        if case.situation.node is not NodeCondition.LOST or not case.situation.pinned:
            return None
        message = f"local volume data is on {case.node_id} (NotReady); it is not started elsewhere"
        status = transitions.awaiting(
            case.status, "local_data", message, case.now, next_status=WorkloadStatus.PENDING
        )
        if status is case.status:
            return None
        if not await self._term.commit(case.transaction(status)):
            return AGAIN
        self._term.events.publish(
            EventType.RESCHEDULE_SKIPPED,
            workload_id=case.workload.id,
            node_id=case.node_id,
            reason=message,
            code="local_data",
        )
        return None

    async def unassign(self, case: Case) -> Next:
        """Its node left the cluster and nothing is to run: give the assignment back."""
        assert case.assignment is not None, "this is a bug: nothing to give back"
        allocation = self._term.view.allocation(case.node_id)
        tx = ledger.unassign(case.transaction(), case.assignment, allocation)
        await self._term.commit(tx)
        return AGAIN

    def _why(self, case: Case) -> str:
        if case.situation.node is NodeCondition.GONE:
            return f"node {case.node_id} left the cluster"
        return f"node {case.node_id} is lost: {self._term.node_views.health(case.node_id).reason}"

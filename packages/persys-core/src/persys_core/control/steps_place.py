"""Steps that change where a workload belongs: assign, grow, move, give back."""

from __future__ import annotations

from datetime import timedelta

from attrs import evolve

from persys_core.control.case import Case
from persys_core.control.term import AGAIN, STAYS, Next, Stays, Term
from persys_core.model.event import EventType
from persys_core.model.states import WorkloadStatus
from persys_core.nodes.leaving import Leaving
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement import ledger
from persys_core.placement.explain import Explanation, ReasonCode, Verdict
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key
from persys_core.ports.observer import Metric
from persys_core.reconcile import transitions
from persys_core.volumes.claims import claims_elsewhere, held_here
from persys_core.volumes.outcome import Outcome

__all__ = ["PlaceSteps"]


class PlaceSteps:
    """The steps of one term."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def assign(self, case: Case) -> Next:
        """Find a node, or more room on the present one; without it the workload is pending."""
        tx = case.transaction()
        tx, status, explanation = self._term.placing.into(tx, case.workload, case.status)
        changed = status is not case.status
        if status.waits_to_grow and case.seen is not None:
            status = transitions.runs_meanwhile(status, case.seen, case.node_id, case.now)
        tx = tx.put(Key.status(case.workload.id), status, case.stored_status)
        if not await self._term.commit(tx):
            return AGAIN
        if explanation is None:
            return AGAIN
        placed = explanation.verdict is Verdict.PLACED
        if placed or changed:
            self._term.placing.publish(case.workload.id, explanation.node_id, explanation)
        if explanation.next_try_at is not None:
            return self._term.until(explanation.next_try_at, timedelta(0))
        # What found no place is woken by free capacity, not by a timer of its own.
        return AGAIN if placed else None

    async def outgrow(self, case: Case) -> Next:
        """Nothing of it runs on its node: the share grows there or, where it cannot, is given up
        for one on a node that has room."""
        _, _, refused = self._term.placing.into(case.transaction(), case.workload, case.status)
        return await (self.assign(case) if refused is None else self.relocate(case))

    async def relocate(self, case: Case) -> Next:
        """Its node is lost, gone or too small: another one gets it, the old one owes a delete.

        Where no other node takes what was on a lost one, it stays there: it may run on, and a node
        that returns is told nothing then (field report N04).
        """
        why = self._why(case)
        tx, status, explanation = self._term.placing.relocate(
            case.transaction(), case.workload, case.status, why
        )
        if case.situation.node is NodeCondition.LOST and explanation.verdict is not Verdict.PLACED:
            text = f"{why}; no other node takes it: {explanation.summary}"
            return await self._told(case, explanation.reasons[0].code, text)
        tx = tx.put(Key.status(case.workload.id), status, case.stored_status)
        if not await self._term.commit(tx):
            return AGAIN
        self._tell_moved(case, explanation, EventType.RESCHEDULED, why)
        return AGAIN if explanation.verdict is Verdict.PLACED else None

    def _tell_moved(self, case: Case, explanation: Explanation, kind: EventType, why: str) -> None:
        moved = explanation.verdict is Verdict.PLACED
        self._term.blocked.pop(case.workload.id, None)
        self._term.ports.observer.increment(
            Metric.EVICTIONS, {"result": "moved" if moved else "pending"}
        )
        self._term.events.publish(
            kind if moved else EventType.WORKLOAD_UNSCHEDULABLE,
            workload_id=case.workload.id,
            node_id=explanation.node_id,
            reason=why if moved else explanation.summary,
            code="" if moved else explanation.reasons[0].code,
            details={"previous_node": case.node_id},
        )

    async def leave(self, case: Case) -> Next | Stays:
        """Its node is to be left: move it if another node takes it, or where it must, at all.

        ``STAYS``: no other node takes it, so it goes on where it is.
        """
        if case.situation.leaving is Leaving.MUST:
            return await self._thrown_out(case)
        tx, status, explanation = self._term.placing.move_away(
            self._ordered(case), case.workload, case.status
        )
        if explanation.verdict is not Verdict.PLACED:
            self._tell_blocked(case, explanation)
            return STAYS
        tx = tx.put(Key.status(case.workload.id), status, case.stored_status)
        if await self._term.commit(tx):
            self._tell_moved(case, explanation, EventType.RELOCATED, self._why_left(case))
        return AGAIN

    async def _thrown_out(self, case: Case) -> Next:
        """The deadline of a forced drain has passed: it goes, to another node or to none."""
        why = f"{self._why_left(case)}; its deadline has passed"
        tx, status, explanation = self._term.placing.relocate(
            self._ordered(case), case.workload, case.status, why
        )
        if explanation.verdict is not Verdict.PLACED:
            status = evolve(status, stopped_on=case.node_id)
        tx = tx.put(Key.status(case.workload.id), status, case.stored_status)
        if await self._term.commit(tx):
            self._tell_moved(case, explanation, EventType.RELOCATED, why)
        return AGAIN

    def _ordered(self, case: Case) -> Transaction:
        """A transaction that loses if the operator took the order back meanwhile."""
        node = self._term.view.node(case.node_id)
        return case.transaction().expecting(Key.node(case.node_id), node)

    def _tell_blocked(self, case: Case, explanation: Explanation) -> None:
        """Once per reason, not once per look (reference defect J11)."""
        code = explanation.reasons[0].code
        if self._term.blocked.get(case.workload.id) == code:
            return
        self._term.blocked[case.workload.id] = code
        self._term.events.publish(
            EventType.RESCHEDULE_SKIPPED,
            workload_id=case.workload.id,
            node_id=case.node_id,
            reason=f"{self._why_left(case)}; no other node takes it: {explanation.summary}",
            code=code,
        )

    def _why_left(self, case: Case) -> str:
        node = case.node
        if node is not None and node.intent.draining:
            return f"node {case.node_id} is drained: {node.intent.reason}"
        return f"node {case.node_id} has a NoExecute taint that it does not tolerate"

    async def await_node(self, case: Case) -> Next:
        """Its node is silent. What may not start elsewhere says what it waits for."""
        if case.situation.node is not NodeCondition.LOST:
            return None
        if case.situation.pinned:
            text = f"local volume data is on {case.node_id} (NotReady); it is not started elsewhere"
            return await self._told(case, ReasonCode.LOCAL_DATA, text)
        held = held_here(case.workload, case.node_id, Outcome(self._term.view))
        return await self._told(case, held.code, held.text) if held else None

    async def await_volume(self, case: Case) -> Next:
        """It was placed, and waits until nobody else may write to its exclusive volume."""
        claims = claims_elsewhere(case.workload, case.node_id, Outcome(self._term.view))
        found = next(claims, None)
        if found is None:
            return AGAIN
        if await self._told(case, found.code, found.text) is AGAIN:
            return AGAIN
        return self._term.config.timing.poll_interval

    async def _told(self, case: Case, code: ReasonCode, text: str) -> Next:
        """It is pending and says why, with one event per change of the reason (defect J11)."""
        known = case.status.reason
        status = transitions.awaiting(
            case.status, code, text, case.now, next_status=WorkloadStatus.PENDING
        )
        if status is case.status:
            return None
        if not await self._term.commit(case.transaction(status)):
            return AGAIN
        if known is None or known.code != code:
            self._term.events.publish(
                EventType.RESCHEDULE_SKIPPED,
                workload_id=case.workload.id,
                node_id=case.node_id,
                reason=text,
                code=code,
            )
        return None

    async def unassign(self, case: Case) -> Next:
        """Its node left the cluster and nothing is to run: give the assignment back."""
        assert case.assignment is not None, "this is a bug: nothing to give back"
        allocation = self._term.view.allocation(case.node_id)
        status = transitions.left(case.status, case.now)
        tx = ledger.unassign(case.transaction(status), case.assignment, allocation)
        await self._term.commit(tx)
        return AGAIN

    def _why(self, case: Case) -> str:
        if case.situation.node is NodeCondition.GONE:
            return f"node {case.node_id} left the cluster"
        since = self._term.uncallable_since(case.node_id)
        if case.situation.node is NodeCondition.READY and since is not None:
            at = since.isoformat(timespec="seconds")
            return f"the agent of node {case.node_id} answers no call since {at}"
        if case.situation.node is NodeCondition.READY:
            return (
                f"node {case.node_id} has no room for the new revision, and nothing of the old one"
                " runs there"
            )
        return f"node {case.node_id} is lost: {self._term.node_views.health(case.node_id).reason}"

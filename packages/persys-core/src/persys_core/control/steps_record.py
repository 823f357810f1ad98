"""Steps that write down what was seen: settled, completed, failed, waiting, gone."""

from __future__ import annotations

from datetime import timedelta

from attrs import evolve

from persys_core.control.case import Case, load_case
from persys_core.control.term import AGAIN, Next, Term
from persys_core.model.event import EventType
from persys_core.model.ids import WorkloadId
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import Failure, FailureKind, IntentAction, StatusRecord
from persys_core.placement import ledger
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key
from persys_core.reconcile import transitions
from persys_core.reconcile.situation import AT_REST, Charge, Outlook
from persys_core.retry.failure import is_node_bound
from persys_core.retry.machine import Verdict

__all__ = ["RecordSteps"]

TRIES_OF_A_RUNTIME = 2


class RecordSteps:
    """The steps of one term."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def settle(self, case: Case) -> Next:
        """Observed equals desired: the record says so, and a share that is too large shrinks."""
        if case.outlook is Outlook.WATCHED:
            return await self._note(case)
        status = transitions.settled(case.status, case.outlook, case.seen, case.node_id, case.now)
        tx = case.transaction(status)
        if case.outlook is Outlook.RUN:
            tx = self._shrunk(tx, case)
        if case.outlook is Outlook.HALTED:
            tx = self._released(tx, case)
        if not await self._term.commit(tx):
            return AGAIN
        if status.status is not case.status.status:
            self._tell_settled(case, status.status)
        return None

    async def hear(self, case: Case) -> bool:
        """Write down what is remarked of a workload that its runtime starts again; false where the
        commit was lost."""
        if case.seen is None:
            return True
        status = transitions.heard(case.status, case.seen, case.now)
        return status is case.status or await self._term.commit(case.transaction(status))

    async def _note(self, case: Case) -> Next:
        """Its spec is not known: what is seen is written down, and no more is done."""
        if case.seen is None:
            return None
        status = transitions.noted(case.status, case.seen, case.node_id, case.now)
        if not await self._term.commit(case.transaction(status)):
            return AGAIN
        if status.status is not case.status.status:
            self._tell_settled(case, status.status)
        return None

    async def complete(self, case: Case) -> Next:
        """It ended well: free its share and tell the agent to let it rest, in one commit."""
        assert case.seen is not None, "this is a bug: an end that nobody saw"
        status = transitions.completed(case.status, case.seen, case.node_id, case.now)
        status = transitions.call_announced(
            status,
            case.workload,
            case.intent(IntentAction.APPLY_STOPPED, self._term),
            self._term.config.reapply,
            local_data=False,
        )
        tx = self._released(case.transaction(status), case)
        if not await self._term.commit(tx):
            return AGAIN
        self._term.events.publish(
            EventType.WORKLOAD_COMPLETED,
            workload_id=case.workload.id,
            node_id=case.node_id,
            reason=case.seen.sighting.message,
        )
        return None

    async def failed(self, workload_id: WorkloadId, failure: Failure) -> Next:
        """Count a failure on the newest records; a lost race reads them anew."""
        for _ in range(self._term.config.commit_attempts):
            case = load_case(self._term, workload_id)
            if case is None or case.assignment is None:
                return None
            if not self._counts(case):
                await self.unanswered(workload_id)
                return self._term.config.timing.poll_interval
            done, following = await self._try_failed(case, failure)
            if done:
                return following
        return AGAIN

    async def unanswered(self, workload_id: WorkloadId) -> None:
        """The announced call was not answered: it may arrive until its deadline."""
        for _ in range(self._term.config.commit_attempts):
            case = load_case(self._term, workload_id)
            if case is None or case.status.intent is None or case.status.intent.unanswered:
                return
            noted = evolve(case.status, intent=evolve(case.status.intent, unanswered=True))
            if await self._term.commit(case.transaction(noted)):
                return

    async def waits(self, case: Case, code: str, message: str, again: timedelta) -> Next:
        """It cannot go on now: say why, once, and look again later."""
        if case.outlook is Outlook.RUN and case.status.status is not WorkloadStatus.RUNNING:
            status = transitions.awaiting(
                case.status, code, message, case.now, next_try_at=case.now + again
            )
            if status is not case.status:
                await self._term.commit(case.transaction(status))
        return again

    async def finalize_delete(self, case: Case) -> Next:
        """Nothing of it is left: remove its records and free its share."""
        tx = self._removed(case)
        if case.assignment is not None:
            allocation = self._term.view.allocation(case.node_id)
            tx = ledger.unassign(tx, case.assignment, allocation)
        return await self._gone(tx, case, "gone from its node")

    async def abandon_delete(self, case: Case) -> Next:
        """The node cannot confirm: it owes the delete, and the records go."""
        assert case.assignment is not None, "this is a bug: no node owes this delete"
        grave = self._term.view.tombstone(case.node_id, case.workload.id)
        why = f"deleted while node {case.node_id} was silent"
        tx = ledger.bury(
            self._removed(case),
            case.workload,
            case.assignment,
            grave,
            why,
            case.now,
            delete_volumes=True,
            call=case.status.intent,
        )
        reason = f"{why}; the node owes the delete"
        return await self._gone(tx, case, reason, outcome="Tombstoned")

    # Parts

    def _counts(self, case: Case) -> bool:
        """Whether a failure says something of the present wish: not of an older revision, and
        not of a workload that is to rest by now."""
        intent = case.status.intent
        current = intent is None or intent.revision_id == case.workload.revision_id
        return current and case.outlook is Outlook.RUN

    async def _try_failed(self, case: Case, failure: Failure) -> tuple[bool, Next]:
        status, outcome = transitions.failed(
            case.status, failure, self._term.config.retry, case.node_id
        )
        if outcome.verdict is Verdict.UNCHANGED:
            return True, self._term.until(case.status.retry.next_at, timedelta(seconds=5))
        tx = case.transaction(status)
        if status.retry.exhausted:
            # An older revision may run on; then its share is free once it is seen at rest.
            tx = self._released(tx, case) if case.situation.observed in AT_REST else tx
        elif self._should_leave(case, status, failure):
            tx = self._left(tx, case, status, failure)
        if not await self._term.commit(tx):
            return False, None
        self._tell_failed(case, failure, outcome.state.attempts, status.retry.exhausted)
        return True, self._term.until(status.retry.next_at, timedelta(seconds=5))

    def _should_leave(self, case: Case, status: StatusRecord, failure: Failure) -> bool:
        """A failure of (workload, node) is tried on another node, where the data lets it.

        A runtime that is away may be back in a moment, so it gets one more try where it is; one
        that the node does not have at all never will be (reference defect C11).
        """
        if case.situation.pinned or not is_node_bound(failure.code):
            return False
        own = failure.kind is FailureKind.WORKLOAD
        return own or status.retry.infrastructure_failures >= TRIES_OF_A_RUNTIME

    def _left(
        self, tx: Transaction, case: Case, status: StatusRecord, failure: Failure
    ) -> Transaction:
        assert case.assignment is not None  # only an assigned workload fails on a node
        grave = self._term.view.tombstone(case.node_id, case.workload.id)
        return ledger.bury(
            tx,
            case.workload,
            case.assignment,
            grave,
            f"left node {case.node_id}: {failure.code}",
            case.now,
            call=status.intent,
        )

    def _released(self, tx: Transaction, case: Case) -> Transaction:
        if case.assignment is None or case.situation.charge is Charge.RELEASED:
            return tx
        allocation = self._term.view.allocation(case.node_id)
        return ledger.release(tx, case.assignment, allocation)

    def _shrunk(self, tx: Transaction, case: Case) -> Transaction:
        """The new revision runs, so what only the old one asked for is free."""
        node = self._term.view.node(case.node_id)
        held = case.assignment
        if node is None or held is None or held.value.charged == case.demand:
            return tx
        if case.situation.charge is not Charge.CHARGED:
            return tx
        return ledger.recharge(
            tx, held, node, self._term.view.allocation(case.node_id), case.demand
        )

    def _removed(self, case: Case) -> Transaction:
        workload_id = case.workload.id
        tx = Transaction().delete(Key.workload(workload_id), case.stored)
        tx = tx.delete(Key.status(workload_id), case.stored_status)
        return tx.expecting(Key.assignment(workload_id), case.assignment)

    async def _gone(
        self, tx: Transaction, case: Case, reason: str, outcome: str = "Deleted"
    ) -> Next:
        """``outcome``: one of ``DeleteAnswer``, which the event tells to those who wait."""
        if not await self._term.commit(tx):
            return AGAIN
        self._term.observations.forget(case.workload.id)
        self._term.ports.telemetry.forget_workload(case.workload.id)
        self._term.events.publish(
            EventType.WORKLOAD_DELETED,
            workload_id=case.workload.id,
            node_id=case.node_id,
            reason=reason,
            details={"outcome": outcome},
        )
        return None

    def _tell_settled(self, case: Case, status: WorkloadStatus) -> None:
        kind = {
            WorkloadStatus.RUNNING: EventType.WORKLOAD_RUNNING,
            WorkloadStatus.STOPPED: EventType.WORKLOAD_STOPPED,
        }.get(status)
        if kind is not None:
            self._term.events.publish(
                kind,
                workload_id=case.workload.id,
                node_id=case.node_id,
                reason=case.seen.sighting.message if case.seen else "",
            )

    def _tell_failed(self, case: Case, failure: Failure, attempts: int, exhausted: bool) -> None:
        kind = EventType.WORKLOAD_FAILED if exhausted else EventType.RETRY_TRIGGERED
        self._term.events.publish(
            kind,
            workload_id=case.workload.id,
            node_id=case.node_id,
            reason=failure.message,
            code=failure.code,
            details={"attempts": str(attempts), "kind": failure.kind.value},
        )

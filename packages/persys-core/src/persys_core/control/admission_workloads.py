"""Admission of workloads: apply, delete, retry. Each a compare-and-swap that any replica may do.

Decided here: what a request changes in the records; of an apply that is ``control.apply_decision``.
A placement that succeeds is part of the same commit; one that does not leaves the wish stored and
explained. The agent is never called from here (architecture §5): the reconciler is nudged by the
change itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from attrs import evolve, frozen

from persys_core.control.answers import ApplyAnswer, ApplyOutcomeKind, DeleteAnswer
from persys_core.control.apply_decision import ApplyRules, check_apply
from persys_core.control.committer import Committer
from persys_core.control.events import EventPublisher
from persys_core.control.node_views import NodeViews
from persys_core.control.placing import Placing
from persys_core.control.reads import Reads
from persys_core.control.requests import ApplyWorkload
from persys_core.control.view import ClusterView
from persys_core.model.errors import NotFoundError, RefusedError
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.states import DesiredState
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement import ledger
from persys_core.placement.ledger import Transaction
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Key, Kind, Versioned
from persys_core.reconcile import transitions
from persys_core.reconcile.situation import Outlook, outlook_of

__all__ = ["WorkloadAdmission"]


@frozen
class WorkloadAdmission:
    """The use cases of users."""

    _view: ClusterView
    _reads: Reads
    _committer: Committer
    _placing: Placing
    _node_views: NodeViews
    _rules: ApplyRules
    _events: EventPublisher
    _clock: Clock
    _require_writable: Callable[[], None]
    _require_deletable: Callable[[], bool]

    async def apply(self, request: ApplyWorkload) -> ApplyAnswer:
        """Create or change a workload; see ``AdmissionApi.apply_workload``."""
        self._require_writable()
        check_apply(request)
        await self._reads.before_apply(request.workload_id, request.expected_revision)
        answer = await self._committer.transact(lambda: self._decide_apply(request))
        self._publish_apply(request.workload_id, answer)
        return answer

    async def delete(self, workload_id: WorkloadId, *, force: bool) -> DeleteAnswer:
        """Begin or force a deletion; see ``AdmissionApi.delete_workload``."""
        removes_only = self._require_deletable()
        await self._reads.through(
            Key.workload(workload_id), Key.status(workload_id), Key.assignment(workload_id)
        )
        decide = self._decide_removal if removes_only else self._decide_delete
        answer = await self._committer.transact(lambda: decide(workload_id, force))
        if answer.outcome == "Deleted":
            self._publish(EventType.WORKLOAD_DELETED, workload_id, "deleted by request")
        return answer

    async def retry(self, workload_id: WorkloadId, *, discard_local: bool = False) -> NodeId:
        """Forget old failures; see ``AdmissionApi.retry_workload``."""
        self._require_writable()
        await self._reads.through(
            Key.workload(workload_id), Key.status(workload_id), Key.assignment(workload_id)
        )
        left = await self._committer.transact(
            lambda: self._decide_retry(workload_id, discard_local)
        )
        why = f"retry requested, its local data on {left} given up" if left else "retry requested"
        self._publish(EventType.RETRY_TRIGGERED, workload_id, why)
        return left

    # Deciding

    def _decide_apply(self, request: ApplyWorkload) -> tuple[Transaction, ApplyAnswer]:
        decision = self._rules.decide(request)
        return decision.tx, decision.answer

    def _decide_delete(
        self, workload_id: WorkloadId, force: bool
    ) -> tuple[Transaction, DeleteAnswer]:
        stored = self._view.workload(workload_id)
        if stored is None:
            return self._drop_tombstones(workload_id, force)
        if force or self._view.assignment(workload_id) is None:
            return self._remove(workload_id, force)
        if stored.value.desired_state is DesiredState.DELETED:
            compared = Transaction().expecting(Key.workload(workload_id), stored)
            return compared, DeleteAnswer("Deleting")
        now = self._clock.now()
        changed = evolve(stored.value, desired_state=DesiredState.DELETED, updated_at=now)
        status = transitions.deleting(self._status_of(stored.value, now), now)
        tx = Transaction().put(Key.workload(workload_id), changed, stored)
        tx = tx.put(Key.status(workload_id), status, self._view.status(workload_id))
        return tx, DeleteAnswer("Deleting")

    def _decide_removal(
        self, workload_id: WorkloadId, force: bool
    ) -> tuple[Transaction, DeleteAnswer]:
        """The store is full and takes only what removes: what no node runs any more can go.

        Everything else would have to write who owes what, so it is refused as frozen.
        """
        stored = self._view.workload(workload_id)
        if stored is None:
            raise NotFoundError("workload", workload_id)
        assignment = self._view.assignment(workload_id)
        ended = assignment is None or assignment.value.released
        if not ended or self._view.volumes_of(workload_id):
            self._require_writable()
        tx = Transaction(forced=force)
        tx = tx.delete(Key.workload(workload_id), stored)
        tx = tx.delete(Key.status(workload_id), self._view.status(workload_id))
        tx = tx.delete(Key.assignment(workload_id), assignment)
        return tx, DeleteAnswer("Deleted")

    def _remove(self, workload_id: WorkloadId, force: bool) -> tuple[Transaction, DeleteAnswer]:
        """No node has it, or the user insists: remove the records at once.

        A node that answers still owes the delete: a copy that runs on, uncharged and unknown,
        would be worse than any wait. What a silent node owes is dropped.
        """
        tx = Transaction(forced=force)
        tx = tx.delete(Key.workload(workload_id), self._view.workload(workload_id))
        tx = tx.delete(Key.status(workload_id), self._view.status(workload_id))
        assignment = self._view.assignment(workload_id)
        if assignment is None:
            tx = tx.expecting(Key.assignment(workload_id), None)
        elif self._node_views.condition(assignment.value.node_id) is NodeCondition.READY:
            return self._owed(tx, workload_id, assignment), DeleteAnswer("Tombstoned")
        else:
            allocation = self._view.allocation(assignment.value.node_id)
            tx = ledger.unassign(tx, assignment, allocation)
        if force:
            tx, _ = self._end_tombstones(tx, workload_id)
        return tx, DeleteAnswer("Deleted")

    def _owed(
        self, tx: Transaction, workload_id: WorkloadId, assignment: Versioned[Assignment]
    ) -> Transaction:
        workload = self._view.workload(workload_id)
        assert workload is not None, "this is a bug: only what exists is deleted"
        node_id = assignment.value.node_id
        status = self._view.status(workload_id)
        return ledger.bury(
            tx,
            workload.value,
            assignment,
            self._view.tombstone(node_id, workload_id),
            "deleted by force",
            self._clock.now(),
            delete_volumes=True,
            call=status.value.intent if status else None,
        )

    def _drop_tombstones(
        self, workload_id: WorkloadId, force: bool
    ) -> tuple[Transaction, DeleteAnswer]:
        tx, count = (
            self._end_tombstones(Transaction(forced=True), workload_id) if force else (None, 0)
        )
        if tx is None or not count:
            raise NotFoundError("workload", workload_id)
        return tx, DeleteAnswer("Deleted")

    def _end_tombstones(self, tx: Transaction, workload_id: WorkloadId) -> tuple[Transaction, int]:
        suffix = "/" + workload_id
        owing = [
            id_.removesuffix(suffix)
            for id_ in self._view.all(Kind.TOMBSTONE)
            if id_.endswith(suffix)
        ]
        for node_id in owing:
            tombstone = self._view.tombstone(node_id, workload_id)
            assert tombstone is not None  # its key was just read from the same view
            tx = ledger.end_tombstone(tx, tombstone, self._view.allocation(node_id))
        return tx, len(owing)

    def _decide_retry(
        self, workload_id: WorkloadId, discard_local: bool
    ) -> tuple[Transaction, NodeId]:
        stored = self._view.workload(workload_id)
        if stored is None:
            raise NotFoundError("workload", workload_id)
        now = self._clock.now()
        if stored.value.desired_state is DesiredState.DELETED:
            raise RefusedError(f'workload "{workload_id}" is being deleted; nothing to retry')
        if stored.value.imported is not None:
            raise RefusedError(f'workload "{workload_id}": {transitions.IMPORT_ADVICE}')
        status = self._status_of(stored.value, now)
        left = self._discarded(status) if discard_local else ""
        if left:
            status = evolve(status, data_node_id="")
        status = transitions.retried(status, now)
        tx = Transaction().expecting(Key.workload(workload_id), stored)
        tx = tx.expecting(Key.assignment(workload_id), self._view.assignment(workload_id))
        if outlook_of(stored.value, status) is Outlook.RUN:
            tx, status, _ = self._placing.into(tx, stored.value, status)
        return tx.put(Key.status(workload_id), status, self._view.status(workload_id)), left

    def _discarded(self, status: StatusRecord) -> NodeId:
        """The node whose local data is given up; RefusedError where that cannot be meant."""
        node_id = status.data_node_id
        if not node_id:
            raise RefusedError(
                f'workload "{status.id}" has no local data on any node; retry it without'
                " discarding local data"
            )
        node = self._view.node(node_id)
        ready = self._node_views.condition(node_id) is NodeCondition.READY
        if ready and node is not None and not node.value.intent.draining:
            raise RefusedError(
                f'node "{node_id}", which has the local data of workload "{status.id}", is in'
                " service: nothing has to be given up; drain the node first if the workload is to"
                " leave it without its data"
            )
        return node_id

    # Small things

    def _status_of(self, workload: Workload, now: datetime) -> StatusRecord:
        stored = self._view.status(workload.id)
        return stored.value if stored else transitions.created(workload, now)

    def _node_of(self, workload_id: WorkloadId) -> str:
        assignment = self._view.assignment(workload_id)
        return assignment.value.node_id if assignment else ""

    def _publish_apply(self, workload_id: WorkloadId, answer: ApplyAnswer) -> None:
        match answer.outcome:
            case ApplyOutcomeKind.CREATED:
                self._publish(EventType.WORKLOAD_CREATED, workload_id, "created")
            case ApplyOutcomeKind.UPDATED:
                self._publish(
                    EventType.WORKLOAD_UPDATED, workload_id, f"revision {answer.revision_id}"
                )
            case ApplyOutcomeKind.DESIRED_STATE_CHANGED:
                self._publish(EventType.WORKLOAD_UPDATED, workload_id, "desired state changed")
            case ApplyOutcomeKind.UNCHANGED:
                return
        if answer.explanation is not None:
            self._placing.publish(workload_id, answer.node_id, answer.explanation)

    def _publish(self, kind: EventType, workload_id: WorkloadId, reason: str) -> None:
        self._events.publish(
            kind, workload_id=workload_id, node_id=self._node_of(workload_id), reason=reason
        )

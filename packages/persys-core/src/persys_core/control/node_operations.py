"""What operators do to nodes: each a compare-and-swap of the node's record, and an event.

Decided here: what is published. What a change means for a record is decided in
``nodes.operations``, what leaves a node and when in ``nodes.leaving``; the leader follows the
record, so any replica may take the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from attrs import evolve, frozen

from persys_core.control.answers import DrainBlocker, DrainProgress, NodeRemoval, NodeView
from persys_core.control.committer import Committer
from persys_core.control.events import EventPublisher
from persys_core.control.leaving_work import work_to_end, work_to_leave
from persys_core.control.node_views import NodeViews
from persys_core.control.placing import Placing
from persys_core.control.reads import Reads
from persys_core.control.requests import (
    DrainNode,
    NodeIntentChange,
    NodeLabelChange,
    NodeTaintChange,
    RemoveNode,
)
from persys_core.control.view import ClusterView
from persys_core.model.errors import NotFoundError, RefusedError
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId
from persys_core.model.node import DrainOrder, Node, OperatorIntent, Taint
from persys_core.model.states import TaintEffect
from persys_core.model.workload import Allocation, StatusRecord, Workload
from persys_core.nodes import operations
from persys_core.nodes.liveness import NodeCondition
from persys_core.nodes.operations import Refusal
from persys_core.placement.ledger import Transaction
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Key, Kind
from persys_core.reconcile import transitions

__all__ = ["NodeOperations"]

Decide = Callable[[Node, datetime], Node | Refusal]


@frozen
class NodeOperations:
    """Implements ``control.api.NodeOperationsApi``."""

    _view: ClusterView
    _reads: Reads
    _committer: Committer
    _node_views: NodeViews
    _placing: Placing
    _events: EventPublisher
    _clock: Clock
    _require_writable: Callable[[], None]

    async def cordon(self, change: NodeIntentChange) -> NodeView:
        """Let no new work come to the node."""
        return await self._change(
            change,
            EventType.NODE_CORDONED,
            lambda node, now: operations.cordon(
                node, reason=change.reason, actor=change.actor, now=now
            ),
        )

    async def uncordon(self, change: NodeIntentChange) -> NodeView:
        """Let work come again."""
        return await self._change(
            change,
            EventType.NODE_UNCORDONED,
            lambda node, now: operations.uncordon(
                node, reason=change.reason, actor=change.actor, now=now
            ),
        )

    async def drain(self, request: DrainNode) -> NodeView:
        """Have everything leave the node."""
        change = request.change
        leaving = len(work_to_leave(self._view, change.node_id))
        replaced: OperatorIntent | None = None

        def ordered(node: Node, now: datetime) -> Node:
            nonlocal replaced
            replaced = node.intent if node.intent.draining else None
            deadline = None if request.deadline is None else now + request.deadline
            order = DrainOrder(now, deadline, request.force, leaving)
            return operations.drain(node, order, reason=change.reason, actor=change.actor)

        view = await self._change(change, EventType.NODE_DRAINING, ordered)
        return evolve(view, replaced=replaced)

    async def undrain(self, change: NodeIntentChange) -> NodeView:
        """End a drain and a cordon."""
        return await self._change(
            change,
            EventType.NODE_READY,
            lambda node, now: operations.undrain(
                node, reason=change.reason, actor=change.actor, now=now
            ),
        )

    async def taint(self, request: NodeTaintChange) -> NodeView:
        """Mark the node."""
        change = request.change
        mark = Taint(request.key, request.value, request.effect or TaintEffect.NO_SCHEDULE)
        return await self._change(
            change,
            EventType.NODE_TAINTED,
            lambda node, now: operations.taint(
                node, mark, reason=change.reason, actor=change.actor, now=now
            ),
            {"key": mark.key, "value": mark.value, "effect": mark.effect.value},
        )

    async def untaint(self, request: NodeTaintChange) -> NodeView:
        """Take marks away."""
        change = request.change
        return await self._change(
            change,
            EventType.NODE_UNTAINTED,
            lambda node, now: operations.untaint(
                node, request.key, request.effect,
                reason=change.reason, actor=change.actor, now=now,
            ),
            {"key": request.key, "effect": request.effect or ""},
        )  # fmt: skip

    async def label(self, request: NodeLabelChange) -> NodeView:
        """Set or take away an operator's label."""
        change, value = request.change, request.value
        if value is None:
            return await self._change(
                change,
                EventType.NODE_LABEL_DELETED,
                lambda node, now: operations.delete_label(
                    node, request.key, actor=change.actor, now=now
                ),
                {"key": request.key},
            )
        return await self._change(
            change,
            EventType.NODE_LABEL_SET,
            lambda node, now: operations.set_label(
                node, request.key, value, actor=change.actor, now=now
            ),
            {"key": request.key, "value": value},
        )

    async def remove(self, request: RemoveNode) -> NodeRemoval:
        """Forget a node. Work that it had is placed elsewhere by the reconciler, and deletes that
        it owes end with it: who forces this answers for copies that may still run."""
        node_id = request.change.node_id
        self._require_writable()
        await self._reads.through(Key.node(node_id))
        removal = await self._committer.transact(lambda: self._removed(node_id, request.force))
        if removal.accepted:
            self._events.publish(
                EventType.NODE_LEFT,
                node_id=node_id,
                reason=request.change.reason or "removed by an operator",
                details={"source": request.change.actor, "force": str(request.force).lower()},
            )
        return removal

    async def progress(self, node_id: NodeId) -> DrainProgress:
        """What left a node, what remains and what cannot leave, and why."""
        await self._reads.through(Key.node(node_id))
        stored = self._view.node(node_id)
        if stored is None:
            raise NotFoundError("node", node_id)
        remaining = work_to_leave(self._view, node_id)
        order = stored.value.intent.drain
        total = order.workloads if order else len(remaining)
        stopped = self._stopped(node_id, order.started_at) if order and order.force else 0
        blockers = map(self._blocker, remaining)
        return DrainProgress(
            moved=max(0, total - len(remaining) - stopped),
            remaining=len(remaining),
            moving=len(work_to_end(self._view, node_id)),
            blocked=tuple(each for each in blockers if each is not None),
            deadline_at=order.deadline_at if order else None,
            force=order.force if order else False,
            stopped=stopped,
            owed=tuple(sorted(self._view.buried_at(node_id))),
        )

    # Parts

    def _stopped(self, node_id: NodeId, began: datetime) -> int:
        """How many workloads the deadline of this drain stopped here that still wait."""
        return sum(
            status.stopped_on == node_id
            and status.reason is not None
            and status.reason.since >= began
            for status in self._view.values(Kind.STATUS, StatusRecord)
        )

    def _blocker(self, workload: Workload) -> DrainBlocker | None:
        status = self._view.status(workload.id)
        if status is None:
            return None
        if workload.imported is not None:
            return DrainBlocker(workload.id, "imported", f"imported; {transitions.IMPORT_ADVICE}")
        explanation = self._placing.explain_leaving(workload, status.value)
        if explanation is None:
            return None
        return DrainBlocker(workload.id, explanation.reasons[0].code, explanation.summary)

    async def _change(
        self,
        change: NodeIntentChange,
        kind: EventType,
        decide: Decide,
        details: Mapping[str, str] | None = None,
    ) -> NodeView:
        self._require_writable()
        await self._reads.through(Key.node(change.node_id))
        changed = await self._committer.transact(lambda: self._decided(change.node_id, decide))
        if changed:
            self._events.publish(
                kind,
                node_id=change.node_id,
                reason=change.reason,
                details={"source": change.actor, **(details or {})},
            )
        return self._node_views.of(change.node_id)

    def _removed(self, node_id: NodeId, force: bool) -> tuple[Transaction, NodeRemoval]:
        stored = self._view.node(node_id)
        if stored is None:
            raise NotFoundError("node", node_id)
        removal = NodeRemoval(
            accepted=True,
            assigned=tuple(sorted(self._view.assigned_to(node_id))),
            owed=tuple(sorted(self._view.buried_at(node_id))),
            beats=self._node_views.condition(node_id) is NodeCondition.READY,
        )
        # Work that is just being given to the node changes its ledger, and one of the two loses.
        key, ledger = Key.allocation(node_id), self._view.allocation(node_id)
        tx = Transaction().expecting(Key.node(node_id), stored).expecting(key, ledger)
        if not removal.assigned and not removal.owed:
            return tx.delete(Key.node(node_id), stored).delete(key, ledger), removal
        if not force:
            return tx, evolve(removal, accepted=False)
        if ledger is not None and ledger.value == Allocation(node_id):
            tx = tx.delete(key, ledger)
        return tx.delete(Key.node(node_id), stored), removal

    def _decided(self, node_id: NodeId, decide: Decide) -> tuple[Transaction, bool]:
        stored = self._view.node(node_id)
        if stored is None:
            raise NotFoundError("node", node_id)
        node = decide(stored.value, self._clock.now())
        if isinstance(node, Refusal):
            raise RefusedError(node.message)
        return Transaction().put(Key.node(node_id), node, stored), node != stored.value

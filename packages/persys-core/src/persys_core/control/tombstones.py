"""Tombstones: seeing owed deletes through, on nodes that come back with work taken from them.

A tombstone ends when the agent says that it does not have the workload and no task is in flight,
or when its node leaves the cluster; until then its share stays charged there (decisions §3).
"""

from __future__ import annotations

from datetime import timedelta

from attrs import evolve

from persys_core.control.term import AGAIN, Next, Term
from persys_core.control.work import Work
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport, TaskStatus
from persys_core.model.states import ObservedState, WorkloadStatus
from persys_core.model.workload import Intent, IntentAction, Tombstone
from persys_core.nodes.leaving import is_throwing_out
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement import ledger
from persys_core.placement.ledger import Transaction
from persys_core.ports.agents import DeleteRequest, NotFound, Refused, Unreachable
from persys_core.ports.cluster_store import Key, Versioned
from persys_core.reconcile.observe import says_gone
from persys_core.reconcile.situation import Outlook, is_underway, outlook_of
from persys_core.volumes.holds import removes_data
from persys_core.volumes.outcome import Outcome

__all__ = ["TombstoneSteps"]

AGAIN_AFTER = timedelta(seconds=10)


class TombstoneSteps:
    """The steps of one term."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def see_through(self, work: Work) -> Next:
        """One look at an owed delete."""
        grave = self._term.view.tombstone(work.node_id, work.workload_id)
        if grave is None:
            return None
        node = self._term.view.node(work.node_id)
        if node is None:
            return await self._end(grave)
        if self._term.condition(work.node_id) is not NodeCondition.READY:
            return None
        if self._is_kept(grave.value, node.value):
            return None
        intent = grave.value.intent
        epoch = self._term.epoch(work.node_id)
        if intent is not None and is_underway(intent, epoch, self._term.now()):
            return self._term.until(intent.deadline, AGAIN_AFTER)
        blocked = self._term.reach.blocked_until(work.node_id)
        if blocked is not None:
            return self._term.until(blocked, AGAIN_AFTER)
        return await self._ask(grave, node.value)

    def _is_kept(self, grave: Tombstone, node: Node) -> bool:
        """Whether the old copy runs on: no other is healthy, and its node bears with it."""
        if not grave.after_healthy or is_throwing_out(node, self._term.now()):
            return False
        return self._replacement_is_owed(grave)

    def _replacement_is_owed(self, grave: Tombstone) -> bool:
        """Whether the old copy is still the healthy one: the new one does not run yet."""
        stored = self._term.view.workload(grave.workload_id)
        status = self._term.view.status(grave.workload_id)
        if stored is None or status is None or stored.value.uid != grave.uid:
            return False
        if outlook_of(stored.value, status.value) is not Outlook.RUN:
            return False
        # What waits for room to be updated runs on in an older revision, if it ever ran there.
        observed = status.value.observed
        ran = observed.state is ObservedState.RUNNING and observed.node_id != grave.node_id
        healthy = status.value.waits_to_grow and ran
        return status.value.status is not WorkloadStatus.RUNNING and not healthy

    async def _ask(self, grave: Versioned[Tombstone], node: Node) -> Next:
        match await self._term.calls.status(node, grave.value.workload_id):
            case NotFound():
                return await self._end(grave)
            case AgentReport() as report:
                return await self._still_there(grave, node, report)
            case Refused() | Unreachable():
                return AGAIN_AFTER

    async def _still_there(
        self, grave: Versioned[Tombstone], node: Node, report: AgentReport
    ) -> Next:
        if says_gone(report):
            return await self._end(grave)
        if report.task_status in (TaskStatus.PENDING, TaskStatus.RUNNING) or self._was_told(grave):
            return self._term.config.timing.poll_interval * 2
        return await self._delete(grave, node)

    def _was_told(self, grave: Versioned[Tombstone]) -> bool:
        intent = grave.value.intent
        if intent is None or intent.unanswered:
            return False
        return self._term.now() < intent.committed_at + self._term.config.timing.delete_timeout

    async def _delete(self, grave: Versioned[Tombstone], node: Node) -> Next:
        now = self._term.now()
        intent = Intent(
            IntentAction.DELETE,
            node.id,
            grave.value.revision_id,
            self._term.epoch(node.id),
            now,
            now + self._term.config.agent_rpc_timeout,
        )
        told = evolve(grave.value, intent=intent)
        key = Key.tombstone(node.id, grave.value.workload_id)
        if not await self._term.commit(Transaction().put(key, told, grave)):
            return AGAIN
        data = grave.value.delete_volumes and removes_data(
            node.id, grave.value.workload_id, grave.value.uid, Outcome(self._term.view)
        )
        epoch = self._term.epoch(node.id)
        request = DeleteRequest(grave.value.workload_id, epoch, delete_volumes=data)
        outcome = await self._term.calls.delete(node, request)
        if isinstance(outcome, Unreachable):
            await self._note_unanswered(grave.value)
            return AGAIN_AFTER
        return self._term.config.timing.poll_interval

    async def _note_unanswered(self, grave: Tombstone) -> None:
        """The delete may arrive until its deadline, so nothing is concluded before."""
        stored = self._term.view.tombstone(grave.node_id, grave.workload_id)
        if stored is None or stored.value.intent is None:
            return
        noted = evolve(stored.value, intent=evolve(stored.value.intent, unanswered=True))
        key = Key.tombstone(grave.node_id, grave.workload_id)
        await self._term.commit(Transaction().put(key, noted, stored))

    async def _end(self, grave: Versioned[Tombstone]) -> Next:
        allocation = self._term.view.allocation(grave.value.node_id)
        tx = ledger.end_tombstone(Transaction(), grave, allocation)
        return None if await self._term.commit(tx) else AGAIN

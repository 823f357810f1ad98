"""DriftDetector: every drift interval, what listings showed is recorded, told and remedied.

Decided here: when a drift is written and told: once, and again when it changes (that its agent
cannot say for now is no change); its record goes when a listing shows that it is resolved (defect
C18). What was put right before a pass came to it is told and not written. A node is listed by this
loop only where nobody else did within the interval. While the control plane is frozen nothing is
asked, written, told or done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from attrs import evolve

from persys_core.control.committer import LeadershipLostError
from persys_core.control.drift_notes import DriftNotes, Look
from persys_core.control.drift_remedies import DriftRemedies
from persys_core.control.term import Term
from persys_core.control.work import Work
from persys_core.drift.classify import Finding
from persys_core.drift.remedy import Remedy
from persys_core.model.drift import DriftRecord, DriftType, OrphanPolicy
from persys_core.model.errors import FrozenError
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId
from persys_core.model.observation import AgentState
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, Kind, StoreUnavailableError, Versioned

__all__ = ["DriftDetector"]

RECORDS_PER_COMMIT = 50

T = TypeVar("T")
_Records = Mapping[Key, Versioned[DriftRecord]]


class DriftDetector:
    """The body of the drift loop of one term. ``list_now`` has one node listed in full."""

    def __init__(
        self,
        term: Term,
        notes: DriftNotes,
        list_now: Callable[[NodeId], Awaitable[None]],
        nudge: Callable[[Work], None],
    ) -> None:
        self._term = term
        self._notes = notes
        self._list_now = list_now
        self._remedies = DriftRemedies(term, nudge, notes)
        self._slots = asyncio.Semaphore(term.config.reconcile_concurrency)
        self._began_at = term.now()
        notes.clear()

    async def run(self) -> None:
        """One pass over all nodes; one that does not answer holds up no other."""
        if not self._term.may_act():
            return
        records = self._records()
        nodes = self._term.view.all(Kind.NODE)
        owns = self._term.ownership.owns
        reachable = [each for each in sorted(nodes) if owns(each) and self._is_reachable(each)]
        try:
            await self._resolve_lost(records, nodes)
        except (LeadershipLostError, StoreUnavailableError, FrozenError):
            return
        await asyncio.gather(*(self._visit(node, records.get(node, {})) for node in reachable))

    def _records(self) -> Mapping[NodeId, _Records]:
        by_node: dict[NodeId, dict[Key, Versioned[DriftRecord]]] = {}
        for id_, stored in self._term.view.all(Kind.DRIFT).items():
            if isinstance(stored.value, DriftRecord):
                record = Versioned(stored.value, stored.revision, stored.create_revision)
                by_node.setdefault(stored.value.node_id, {})[Key(Kind.DRIFT, id_)] = record
        return by_node

    def _is_reachable(self, node_id: NodeId) -> bool:
        ready = self._term.node_views.condition(node_id) is NodeCondition.READY
        return ready and self._term.reach.blocked_until(node_id) is None

    async def _resolve_lost(
        self, records: Mapping[NodeId, _Records], nodes: Mapping[NodeId, object]
    ) -> None:
        """A node that left the cluster has no drift."""
        for node_id in sorted(records.keys() - nodes.keys()):
            if not self._term.ownership.owns(node_id):
                continue
            self._notes.forget(node_id)
            await self._remove(records[node_id])

    async def _visit(self, node_id: NodeId, records: _Records) -> None:
        try:
            async with self._slots:
                look = await self._fresh_look(node_id)
                if look is not None and self._may_settle(node_id):
                    await self._settle(node_id, look, records)
        except (LeadershipLostError, StoreUnavailableError, FrozenError):
            # The next pass, or the next leader, looks again.
            return

    def _may_settle(self, node_id: NodeId) -> bool:
        return self._term.may_act() and self._term.ownership.owns(node_id)

    # Listing

    async def _fresh_look(self, node_id: NodeId) -> Look | None:
        """The newest listing; ``None`` where there is none that is young enough."""
        look = self._notes.look(node_id)
        if (self._is_stale(look) and not self._is_awaited(look)) or self._lacks_ages(look):
            await self._list_now(node_id)
            look = self._notes.look(node_id)
        return None if self._is_stale(look) else look

    def _is_stale(self, look: Look | None) -> bool:
        return look is None or look.at < self._term.now() - self._term.config.drift_interval

    def _is_awaited(self, look: Look | None) -> bool:
        """Whether the reconcile loop is about to list it: at the beginning of a term."""
        interval = self._term.config.drift_interval
        return look is None and self._term.now() - self._began_at < interval

    def _lacks_ages(self, look: Look | None) -> bool:
        """Whether something might be deleted if its agent said since when it has it."""
        if look is None or self._term.config.orphan_policy is not OrphanPolicy.DELETE:
            return False
        return any(each.orphan and each.orphan.created_at is None for each in look.findings)

    # Recording

    async def _settle(self, node_id: NodeId, look: Look, records: _Records) -> None:
        ripe = self._notes.ripe(node_id)
        for witness in filter(self._is_reachable, sorted(self._remedies.witnesses(ripe))):
            await self._list_now(witness)
        active: dict[Key, Finding] = {}
        for finding in filter(self._remedies.still_stands, ripe):
            key = Key.drift(node_id, finding.workload_id, finding.type)
            if finding.workload_id in look.unsettled:
                active.setdefault(key, finding)
            else:
                self._tell_healed(key, finding, records)
        await self._record_all(active, records)
        done = {
            key: stored
            for key, stored in records.items()
            if key not in active and self._is_resolved(stored.value, look)
        }
        await self._remove(done)

    def _is_resolved(self, record: DriftRecord, look: Look) -> bool:
        """Whether all is as recorded; what is assigned to the node is no orphan even before."""
        assignment = self._term.view.assignment(record.workload_id)
        here = assignment is not None and assignment.value.node_id == record.node_id
        orphan = record.drift_type == DriftType.ORPHAN_ON_AGENT
        return record.workload_id not in look.unsettled or (orphan and here)

    async def _record_all(self, active: Mapping[Key, Finding], records: _Records) -> None:
        batch: list[tuple[Key, DriftRecord]] = []
        for key, finding in active.items():
            remedy = self._remedies.choose(finding)
            record = _record(finding, remedy, records.get(key))
            tx = self._remedies.perform(finding, remedy.action, Transaction())
            if tx.writes:
                tx = tx.put(key, record, records.get(key))
                if await self._term.commit(tx):
                    self._tell(record)
            elif key not in records or records[key].value != record:
                batch.append((key, record))
        await self._write(batch, records)

    async def _write(self, batch: list[tuple[Key, DriftRecord]], records: _Records) -> None:
        for part in _parts(batch):
            tx = Transaction()
            for key, record in part:
                tx = tx.put(key, record, records.get(key))
            if await self._term.commit(tx):
                for _, record in part:
                    self._tell(record)

    async def _remove(self, done: _Records) -> None:
        for part in _parts(list(done.items())):
            tx = Transaction()
            for key, stored in part:
                tx = tx.delete(key, stored)
            await self._term.commit(tx)

    def _tell_healed(self, key: Key, finding: Finding, records: _Records) -> None:
        """It was put right before this pass: told, unless its record told of it already."""
        if key not in records:
            self._tell(_record(finding, self._remedies.choose(finding), None), healed=True)

    def _tell(self, record: DriftRecord, *, healed: bool = False) -> None:
        self._term.events.publish(
            EventType.DRIFT_DETECTED,
            workload_id=record.workload_id,
            node_id=record.node_id,
            reason=record.drift_type,
            code=f"{record.drift_type}:{record.action}",
            details={
                "scheduler_status": record.scheduler_status,
                "agent_status": record.agent_status,
                "action": record.action,
                "resolved": "true" if healed else "false",
                "last_error": record.last_error,
            },
        )


def _record(finding: Finding, remedy: Remedy, stored: Versioned[DriftRecord] | None) -> DriftRecord:
    record = DriftRecord(
        node_id=finding.node_id,
        workload_id=finding.workload_id,
        drift_type=finding.type,
        detected_at=finding.at,
        scheduler_status=finding.scheduler_status,
        agent_status=finding.agent_status,
        action=remedy.action,
        last_error=remedy.note,
    )
    if stored is None:
        return record
    # An agent that cannot say for now says nothing new: heartbeats lack what listings have, so the
    # two would be written in turn for ever where somebody removed what the agent knows.
    unsure = record.agent_status == AgentState.UNKNOWN
    known = stored.value.agent_status if unsure else record.agent_status
    return evolve(record, detected_at=stored.value.detected_at, agent_status=known)


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), RECORDS_PER_COMMIT):
        yield items[start : start + RECORDS_PER_COMMIT]

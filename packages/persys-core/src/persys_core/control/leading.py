"""LeadingLoops: what runs only while this replica leads, and ends with its leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from persys_core.control.agent_calls import AgentCalls
from persys_core.control.committer import LeadershipLostError
from persys_core.control.compaction import Compaction
from persys_core.control.drift_detector import DriftDetector
from persys_core.control.ledger_audit import LedgerAudit
from persys_core.control.loops import PeriodicLoop
from persys_core.control.node_pass import NodePass
from persys_core.control.reconciler import Reconciler
from persys_core.control.take_over import TakeOver
from persys_core.control.term import Term
from persys_core.control.volume_audit import VolumeAudit
from persys_core.control.work import Work, tombstone_work, workload_work
from persys_core.control.workqueue import WorkQueue
from persys_core.model.drift import DriftRecord
from persys_core.model.errors import FrozenError
from persys_core.model.ids import NodeId
from persys_core.model.node import Fence, Node, OperatorIntent
from persys_core.model.states import WorkloadStatus
from persys_core.model.volume import Volume
from persys_core.model.workload import Tombstone, Workload
from persys_core.ports.cluster_store import (
    Key,
    Kind,
    Record,
    StoreUnavailableError,
    Versioned,
)
from persys_core.ports.membership import Leadership

if TYPE_CHECKING:
    from persys_core.control.scheduler import Scheduler

__all__ = ["LeadingLoops"]

AUDIT_INTERVAL = timedelta(seconds=60)
COALESCE = timedelta(milliseconds=50)
_AT_REST = (
    WorkloadStatus.RUNNING,
    WorkloadStatus.STOPPED,
    WorkloadStatus.COMPLETED,
    WorkloadStatus.FAILED,
)


class LeadingLoops:
    """The loops of one leadership of one replica."""

    def __init__(
        self,
        scheduler: Scheduler,
        leadership: Leadership,
        on_bug: Callable[[object, Exception], None],
    ) -> None:
        self._scheduler = scheduler
        self._view = scheduler.view
        self._leadership = leadership
        self._clock = scheduler.ports.clock
        self._fenced_off = asyncio.Event()
        self._term = self._make_term(scheduler, leadership)
        self._reconciler = Reconciler(self._term)
        self._queue: WorkQueue[Work] = WorkQueue(
            self._reconciler.handle,
            scheduler.ports.clock,
            workers=scheduler.config.reconcile_concurrency,
            on_bug=on_bug,
        )
        self._pass = NodePass(self._term, scheduler.listing, scheduler.modes.report)
        self._take_over = TakeOver(self._term, lambda: scheduler.modes.may_act)
        self._audit = LedgerAudit(self._term)
        self._volume_audit = VolumeAudit(self._term)
        self._drift = DriftDetector(
            self._term, scheduler.drift_notes, self._pass.look_at, self.nudge
        )
        self._ended = False
        self.loops = self._make_loops(on_bug)
        scheduler.view.listen(self._on_change)

    def _make_term(self, scheduler: Scheduler, leadership: Leadership) -> Term:
        calls = AgentCalls(
            scheduler.ports, scheduler.config, scheduler.committer, leadership, scheduler.reach
        )
        return Term(
            leadership=leadership,
            view=scheduler.view,
            committer=scheduler.committer,
            placing=scheduler.placing,
            observations=scheduler.observations,
            node_views=scheduler.node_views,
            reach=scheduler.reach,
            calls=calls,
            events=scheduler.publisher,
            ports=scheduler.ports,
            config=scheduler.config,
            requeue=self._requeue,
            may_act=lambda: scheduler.modes.may_act and not self._take_over.is_due,
            may_move=scheduler.monitor.may_move,
            looking_at=scheduler.monitor.releases.looking_at,
            step_down=self._fenced_off.set,
        )

    def _make_loops(self, on_bug: Callable[[object, Exception], None]) -> dict[str, PeriodicLoop]:
        config = self._scheduler.config
        bodies = {
            "reconcile": (config.reconcile_interval, self._pass.run),
            "pending": (config.pending_sweep_interval, self._sweep_pending),
            "drift": (config.drift_interval, self._drift.run),
            "audit": (AUDIT_INTERVAL, self._audit_and_sweep),
        }
        if config.compact_interval:
            compaction = Compaction(self._scheduler.ports.store, self._view)
            bodies["compaction"] = (config.compact_interval, compaction.run)
        return {
            name: PeriodicLoop(
                name,
                interval,
                body,
                self._clock,
                on_bug=on_bug,
                jitter=0.05,
                rng=self._scheduler.ports.rng,
            )
            for name, (interval, body) in bodies.items()
        }

    async def run(self) -> None:
        """Work until the leadership is lost or this is cancelled; then nothing goes on."""
        lost = asyncio.create_task(self._scheduler.ports.membership.lost(self._leadership))
        fenced_off = asyncio.create_task(self._fenced_off.wait())
        tasks = [asyncio.create_task(self._take_over.run())]
        try:
            await asyncio.wait((lost, fenced_off, *tasks), return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
                self._add_unsettled()
                tasks = [asyncio.create_task(body) for body in self._bodies()]
                await asyncio.wait((lost, fenced_off, *tasks), return_when=asyncio.FIRST_COMPLETED)
        except LeadershipLostError:
            return
        finally:
            self._ended = True
            self._view.unlisten(self._on_change)
            for task in (lost, fenced_off, *tasks):
                task.cancel()
            await asyncio.gather(lost, fenced_off, *tasks, return_exceptions=True)

    def _bodies(self) -> list[Coroutine[Any, Any, None]]:
        return [self._queue.run(), *(loop.run() for loop in self.loops.values())]

    async def finish(self, patience: timedelta) -> None:
        """Let the looks that are under way come to their end, and begin no other.

        A call whose intent is committed is made, so that a clean stop leaves nothing that the
        next leader has to wait out. What is not done after ``patience`` is given up.
        """
        self._ended = True
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.total_seconds()):
                await self._queue.stop(drain=False)

    # Nudges

    def nudge(self, work: Work) -> None:
        """Have ``work`` looked at soon."""
        if not self._ended:
            self._queue.add(work)

    def capacity_changed(self) -> None:
        """Something may have become free or open: what waits gets its turn (P04)."""
        self.loops["pending"].nudge()

    def audit_soon(self) -> None:
        """The view was replaced: the ledger is compared anew (P03)."""
        self.loops["audit"].nudge()

    def node_heard(self, node_id: NodeId) -> None:
        """A node that was not listed yet need not wait for the next pass."""
        node = self._view.node(node_id)
        marker = self._view.marker()
        if node and marker and node.value.listed_under != marker.create_revision:
            self.loops["reconcile"].nudge()

    def node_changed(self, node_id: NodeId) -> None:
        """The node's condition changed: everything on it is looked at."""
        for workload_id in sorted(self._view.assigned_to(node_id)):
            self.nudge(workload_work(workload_id))
        for workload_id in sorted(self._view.buried_at(node_id)):
            self.nudge(tombstone_work(node_id, workload_id))

    def _requeue(self, work: Work, delay: timedelta) -> None:
        if not self._ended:
            self._queue.add_after(work, delay)

    def _on_change(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        if self._ended:
            return
        match key.kind:
            case Kind.WORKLOAD if _is_imported(before) and not _is_imported(after):
                # Its volumes are known from now on: who had to wait for that goes on.
                self.capacity_changed()
                self.nudge(workload_work(key.id))
            case Kind.WORKLOAD | Kind.STATUS | Kind.ASSIGNMENT:
                self.nudge(workload_work(key.id))
                for node_id in sorted(self._view.graves_of(key.id)):
                    self.nudge(tombstone_work(node_id, key.id))
            case Kind.TOMBSTONE:
                self._nudge_tombstone(before, after)
            case Kind.VOLUME if _released(before) != _released(after):
                self._nudge_users(before, after)
            case Kind.DRIFT if after is None:
                self._nudge_waiting(before)
            case Kind.LEDGER if after is None:
                self.audit_soon()
            case Kind.NODE if _word_on(before) != _word_on(after):
                self.node_changed(key.id)
            case _:
                pass

    def _nudge_waiting(self, before: Versioned[Record] | None) -> None:
        """A copy that ran unrecorded is gone: the workload that waited for that goes on."""
        if before is not None and isinstance(before.value, DriftRecord):
            self.nudge(workload_work(before.value.workload_id))

    def _nudge_users(
        self, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        """An operator answers for a volume's holder: who waits for that goes on."""
        for stored in (before, after):
            if stored is not None and isinstance(stored.value, Volume):
                for workload_id in stored.value.workload_refs:
                    self.nudge(workload_work(workload_id))

    def _nudge_tombstone(
        self, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        """A new one is seen through; the end of one lets its workload, or the next one, go on."""
        if after is not None and isinstance(after.value, Tombstone):
            self.nudge(tombstone_work(after.value.node_id, after.value.workload_id))
        elif before is not None and isinstance(before.value, Tombstone):
            self.nudge(workload_work(before.value.workload_id))
            self._nudge_leaving(before.value.node_id)

    def _nudge_leaving(self, node_id: NodeId) -> None:
        """Everything that must leave this node, if it is one that is to be left."""
        node = self._view.node(node_id)
        if node is not None and (node.value.intent.draining or node.value.intent.taints):
            for workload_id in sorted(self._view.assigned_to(node_id)):
                self.nudge(workload_work(workload_id))

    # Sweeps

    async def _sweep_pending(self) -> None:
        """Everything that waits, in its turn. Changes that come together are one sweep."""
        await self._clock.sleep(COALESCE)
        for workload_id in self._scheduler.pending.in_turn():
            self.nudge(workload_work(workload_id))
        for node_id in sorted(self._view.all(Kind.NODE)):
            self._nudge_leaving(node_id)

    async def _audit_and_sweep(self) -> None:
        """The backstop: the ledger, the volumes, and everything that is not at rest."""
        with suppress(StoreUnavailableError, FrozenError, LeadershipLostError):
            # What could not be compared now the next pass, or the next leader, compares.
            await self._take_over.run()
            await self._audit.run()
            await self._volume_audit.run()
        self._add_unsettled()

    def _add_unsettled(self) -> None:
        for workload_id in self._view.all(Kind.WORKLOAD):
            status = self._view.status(workload_id)
            if (
                status is None
                or status.value.status not in _AT_REST
                or status.value.intent is not None
            ):
                self.nudge(workload_work(workload_id))
        for grave in self._view.values(Kind.TOMBSTONE, Tombstone):
            self.nudge(tombstone_work(grave.node_id, grave.workload_id))


def _is_imported(stored: Versioned[Record] | None) -> bool:
    record = stored.value if stored else None
    return isinstance(record, Workload) and record.imported is not None


def _released(stored: Versioned[Record] | None) -> datetime | None:
    claim = stored.value.claim if stored and isinstance(stored.value, Volume) else None
    return claim.released_at if claim else None


def _word_on(stored: Versioned[Record] | None) -> tuple[OperatorIntent, Fence | None] | None:
    """What operators say of a node; ``None`` where there is no such node."""
    if stored is None or not isinstance(stored.value, Node):
        return None
    return stored.value.intent, stored.value.fence

"""LeadingLoops: what runs only while this replica acts, and ends with its leadership.

What belongs to no node is done by the owner of the id ``""``: the backlog, the ledger's take-over,
the volumes' records, compaction, and the pace at which work leaves lost nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from persys_core.control.agent_calls import AgentCalls
from persys_core.control.committer import LeadershipLostError
from persys_core.control.compaction import Compaction
from persys_core.control.drift_detector import DriftDetector
from persys_core.control.hand_over import PATIENCE, HandOver
from persys_core.control.ledger_audit import LedgerAudit
from persys_core.control.loops import PeriodicLoop
from persys_core.control.node_pass import NodePass
from persys_core.control.nudges import Nudges
from persys_core.control.ownership import Ownership, WholeCluster
from persys_core.control.reconciler import Reconciler
from persys_core.control.self_fencing import SelfFencing
from persys_core.control.take_over import TakeOver
from persys_core.control.term import Term
from persys_core.control.unreadable import clear_unreadable
from persys_core.control.volume_audit import VolumeAudit
from persys_core.control.work import Work, tombstone_work, workload_work
from persys_core.control.workqueue import WorkQueue
from persys_core.model.errors import FrozenError
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.replica import Evictions
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import Tombstone
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import (
    Key,
    Kind,
    Record,
    StoreUnavailableError,
    Versioned,
)
from persys_core.ports.membership import Leadership
from persys_core.sharding.hashing import UNASSIGNED

if TYPE_CHECKING:
    from persys_core.control.scheduler import Scheduler

__all__ = ["LeadingLoops"]

AUDIT_INTERVAL = timedelta(seconds=60)
EVICTIONS_INTERVAL = timedelta(seconds=1)
SELF_FENCING_INTERVAL = timedelta(seconds=5)
_Body = Callable[[], Coroutine[Any, Any, None]]
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
        ownership: Ownership,
        on_bug: Callable[[object, Exception], None],
    ) -> None:
        self._scheduler = scheduler
        self._view = scheduler.view
        self._leadership = leadership
        self._owns = ownership.owns
        self._shares_work = not isinstance(ownership, WholeCluster)
        self._looking_at: dict[Work, set[NodeId]] = {}
        """Per look that is under way: the nodes that it was about."""
        self._clock = scheduler.ports.clock
        self._fenced_off = asyncio.Event()
        self._term = self._make_term(scheduler, leadership, ownership)
        self._reconciler = Reconciler(self._term)
        self._queue: WorkQueue[Work] = WorkQueue(
            self._handle,
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
        self._nudges = Nudges(
            scheduler.view, self.nudge, self.node_changed, self.capacity_changed, self.audit_soon
        )
        self.loops = self._make_loops(on_bug)
        scheduler.view.listen(self._on_change)

    def _make_term(
        self, scheduler: Scheduler, leadership: Leadership, ownership: Ownership
    ) -> Term:
        calls = AgentCalls(
            scheduler.ports, scheduler.config, scheduler.committer, leadership, scheduler.reach
        )
        return Term(
            leadership=leadership,
            ownership=ownership,
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
            may_move=self._may_move,
            takes_up=self._takes_up,
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
            "self-fencing": (SELF_FENCING_INTERVAL, SelfFencing(self._term).run),
        }
        if config.compact_interval:
            compaction = Compaction(self._scheduler.ports.store, self._view)
            bodies["compaction"] = (config.compact_interval, self._once_for_all(compaction.run))
        if self._shares_work:
            bodies["evictions"] = (EVICTIONS_INTERVAL, self._once_for_all(self._share_evictions))
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

    async def run(self, hand_over: HandOver | None = None) -> None:
        """Work until the leadership is lost or this is cancelled; then nothing goes on.

        ``hand_over`` says in elastic mode which nodes are taken up and let go; it runs beside.
        """
        lost = asyncio.create_task(self._scheduler.ports.membership.lost(self._leadership))
        fenced_off = asyncio.create_task(self._fenced_off.wait())
        tasks = [asyncio.create_task(self._begin())]
        try:
            await asyncio.wait((lost, fenced_off, *tasks), return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
                self._add_unsettled()
                tasks = [asyncio.create_task(body) for body in self._bodies(hand_over)]
                await asyncio.wait((lost, fenced_off, *tasks), return_when=asyncio.FIRST_COMPLETED)
        except LeadershipLostError:
            return
        finally:
            self._ended = True
            self._view.unlisten(self._on_change)
            for task in (lost, fenced_off, *tasks):
                task.cancel()
            await asyncio.gather(lost, fenced_off, *tasks, return_exceptions=True)

    async def _begin(self) -> None:
        """Over another scheduler's records the ledger comes first. Who is to build it is not known
        yet in elastic mode: then it is done once that is taken up, and nobody acts before."""
        if self._owns(UNASSIGNED):
            await self._take_over.run()

    def _bodies(self, hand_over: HandOver | None) -> list[Coroutine[Any, Any, None]]:
        bodies = [self._queue.run(), *(loop.run() for loop in self.loops.values())]
        return [*bodies, hand_over.run()] if hand_over else bodies

    async def finish(self, patience: timedelta) -> None:
        """Let the looks that are under way come to their end, and begin no other.

        A call whose intent is committed is made, so that a clean stop leaves nothing that the
        next leader has to wait out. What is not done after ``patience`` is given up.
        """
        self._ended = True
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.total_seconds()):
                await self._queue.stop(drain=False)

    # Ownership

    async def _handle(self, work: Work) -> None:
        try:
            await self._reconciler.handle(work)
        finally:
            self._looking_at.pop(work, None)

    def _takes_up(self, work: Work) -> bool:
        node_id = work.node_id or self._node_of(work.workload_id)
        if not self._owns(node_id):
            return False
        self._looking_at.setdefault(work, set()).add(node_id)
        return True

    def _node_of(self, workload_id: WorkloadId) -> NodeId:
        assignment = self._view.assignment(workload_id)
        return assignment.value.node_id if assignment else UNASSIGNED

    def acts_for(self, node_id: NodeId) -> bool:
        """Whether something may be begun for the node now, or is under way for it."""
        if self._ended or not self._scheduler.ports.membership.is_valid(self._leadership):
            return False
        return self._owns(node_id) or any(node_id in each for each in self._looking_at.values())

    async def let_end(self, nodes: frozenset[NodeId]) -> None:
        """Nothing is under way for these nodes afterwards; what takes too long is cut off."""
        await self._queue.let_end(
            lambda work: not nodes.isdisjoint(self._looking_at.get(work, ())), PATIENCE
        )

    def nodes_taken(self, nodes: frozenset[NodeId]) -> None:
        """These nodes are this replica's since just now: everything on them is looked at."""
        for node_id in sorted(nodes - {UNASSIGNED}):
            self.node_changed(node_id)
        self.loops["reconcile"].nudge()
        if UNASSIGNED in nodes:
            self.capacity_changed()
            self.audit_soon()

    def _once_for_all(self, body: _Body) -> _Body:
        """What one replica does for the whole cluster."""

        async def run() -> None:
            if self._owns(UNASSIGNED):
                await body()

        return run

    def _may_move(self, node_id: NodeId) -> bool:
        if not self._shares_work:
            return self._scheduler.monitor.may_move(node_id)
        stored = self._view.get(Key.evictions())
        released = stored.value if stored else None
        return isinstance(released, Evictions) and node_id in released.may_move

    async def _share_evictions(self) -> None:
        """One replica sets the pace at which the work of lost nodes may move, for all of them."""
        if not self._term.may_act():
            return
        key, wanted = Key.evictions(), Evictions(self._scheduler.monitor.released)
        stored = self._view.get(key)
        if stored is None and not wanted.may_move:
            return
        tx = self._term.ownership.guard(Transaction().put(key, wanted, stored))
        with suppress(StoreUnavailableError, FrozenError):
            result = await self._term.committer.commit(tx, self._leadership)
            await clear_unreadable(self._term.committer, self._leadership, key, tx, result)

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
        if not self._ended:
            self._nudges.on_change(key, before, after)

    # Sweeps

    async def _sweep_pending(self) -> None:
        """Everything that waits, in its turn. Changes that come together are one sweep."""
        await self._clock.sleep(COALESCE)
        for workload_id in self._scheduler.pending.in_turn():
            self.nudge(workload_work(workload_id))
        for node_id in sorted(self._view.all(Kind.NODE)):
            self._nudges.nudge_leaving(node_id)

    async def _audit_and_sweep(self) -> None:
        """The backstop: the ledger, the volumes, and everything that is not at rest."""
        with suppress(StoreUnavailableError, FrozenError, LeadershipLostError):
            # What could not be compared now the next pass, or the next leader, compares.
            await self._begin()
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

"""NodePass: every reconcile interval, what each node runs is compared with what it should run.

One ListWorkloads per node and pass at most, and none where a fresh heartbeat already told; a
steady cluster costs nothing else (architecture §3.4). Also brings nodes that were never listed
under this cluster's marker to the point where work may be placed on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from attrs import evolve

from persys_core.control.committer import LeadershipLostError
from persys_core.control.listing import Listing
from persys_core.control.term import Term
from persys_core.model.cluster import ClusterMarker
from persys_core.model.counted import counted
from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.modes.evidence import judge_work
from persys_core.modes.machine import ModeEvent
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.ledger import Transaction
from persys_core.ports.agents import Refused, Unreachable
from persys_core.ports.cluster_store import Key, Kind, StoreUnavailableError, Versioned
from persys_core.ports.observer import Metric
from persys_core.ports.tracer import SpanName

__all__ = ["NodePass"]


class NodePass:
    """The body of the reconcile loop of one term."""

    def __init__(
        self, term: Term, listing: Listing, report: Callable[[ModeEvent, str], None]
    ) -> None:
        self._term = term
        self._listing = listing
        self._report = report
        self._slots = asyncio.Semaphore(term.config.reconcile_concurrency)

    async def run(self) -> None:
        """One pass; one slow node costs its own deadline and holds up no other (G02)."""
        if not self._term.may_act():
            return
        began = self._term.ports.clock.monotonic()
        nodes = [node for node in self._term.view.all(Kind.NODE) if self._needs_listing(node)]
        with self._term.ports.observer.span(SpanName.RECONCILE_PASS, size=len(nodes)):
            await asyncio.gather(*(self.look_at(node_id) for node_id in nodes))
            seconds = self._term.ports.clock.monotonic() - began
            self._term.ports.observer.record(Metric.RECONCILE_CYCLE_SECONDS, seconds, {})
        self._term.ports.observer.increment(Metric.RECONCILE_CYCLES, {"result": "success"})

    def _needs_listing(self, node_id: NodeId) -> bool:
        if not self._term.ownership.owns(node_id):
            return False
        if self._term.node_views.condition(node_id) is not NodeCondition.READY:
            return False
        if self._term.reach.blocked_until(node_id) is not None:
            return False
        if self._term.reach.is_uncalled(node_id):
            return True
        # Half an interval: a listing that came a little late must not cost the next one too.
        fresh = self._term.node_views.listed_within(
            node_id, self._term.config.reconcile_interval / 2
        )
        return not fresh or not self._is_listed(node_id)

    def _is_listed(self, node_id: NodeId) -> bool:
        stored = self._term.view.node(node_id)
        marker = self._term.view.marker()
        return (
            stored is not None
            and marker is not None
            and stored.value.listed_under == marker.create_revision
        )

    async def look_at(self, node_id: NodeId) -> None:
        """List one node in full now, in its turn; nothing is taken from one without an answer."""
        stored = self._term.view.node(node_id)
        if stored is None:
            return
        try:
            async with self._slots:
                await self._list(stored.value)
        except (LeadershipLostError, StoreUnavailableError):
            # The next pass, or the next leader, looks again.
            return

    async def _list(self, node: Node) -> None:
        asked_at = self._term.now()
        reports = await self._term.calls.list(node)
        if isinstance(reports, Refused | Unreachable):
            return
        contradiction = judge_work(self._marker(), len(reports))
        if contradiction is not None:
            self._report(contradiction, f"node {node.id} runs {counted(len(reports), 'workload')}")
            return
        self._listing.take(node.id, reports, asked_at, full=True)
        self._term.node_views.listed_now(node.id)
        if not self._is_listed(node.id):
            await self._open(node.id)

    async def _open(self, node_id: NodeId) -> None:
        """Everything on the node is known now: work may be placed there from here on."""
        stored: Versioned[Node] | None = self._term.view.node(node_id)
        marker = self._term.view.marker()
        if stored is None or marker is None or not self._term.ownership.owns(node_id):
            return
        listed = evolve(stored.value, listed_under=marker.create_revision)
        await self._term.commit(Transaction().put(Key.node(node_id), listed, stored))

    def _marker(self) -> ClusterMarker | None:
        stored = self._term.view.marker()
        return stored.value if stored else None

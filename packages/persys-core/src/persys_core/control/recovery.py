"""Recovery: how an operator leads the cluster out of recovery mode (decisions §4).

Decided here: the order of things. While records are rebuilt the store is without a marker, which
keeps every replica, restarted ones too, in recovery; the marker is written last, in a new life, so
that no node takes work before it was listed in full and all that agents have is older than the
records. A half-done import is therefore repeated, and never half of a cluster that acts.

What is rebuilt is decided in ``recovery.plan``, and committed by the ``ImportWriter``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from attrs import define, field, frozen

from persys_core.control.announced import Announced
from persys_core.control.answers import ImportAnswer
from persys_core.control.committer import Committer
from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.events import EventPublisher
from persys_core.control.import_writer import ImportWriter
from persys_core.control.mode_supervisor import ModeSupervisor
from persys_core.control.requests import AcknowledgeEmpty, ImportFromAgents
from persys_core.control.view import ClusterView
from persys_core.model.cluster import ClusterMarker, LedgerState, MarkerState
from persys_core.model.errors import FrozenError, NotFoundError, RefusedError
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport
from persys_core.model.states import OperatingMode
from persys_core.model.workload import Workload
from persys_core.modes.machine import frozen_text
from persys_core.nodes.operations import register
from persys_core.placement.ledger import Transaction
from persys_core.ports.agents import Refused, Unreachable
from persys_core.ports.cluster_store import Key, Kind, Snapshot
from persys_core.recovery.plan import Decision, ImportItem, Recorded, plan_import
from persys_core.recovery.take_over import is_of_another

__all__ = ["Recovery"]


@frozen
class _Ground:
    """What an import is judged by: the store's records and, where the store was lost under this
    running replica, those that it remembers."""

    stored: ClusterView
    remembered: ClusterView | None = None
    snapshot: Snapshot | None = None

    def recorded(self, workload_id: WorkloadId) -> Recorded:
        for view in filter(None, (self.stored, self.remembered)):
            workload = view.workload(workload_id)
            graves = view.graves_of(workload_id)
            if workload is not None or graves:
                status, assignment = view.status(workload_id), view.assignment(workload_id)
                return Recorded(
                    workload.value if workload else None,
                    status.value if status else None,
                    assignment.value if assignment else None,
                    graves,
                    is_stored=view is self.stored,
                )
        return Recorded()


@define(eq=False)
class Recovery:
    """Implements ``control.api.RecoveryApi`` for one replica.

    ``take_store`` makes a snapshot this replica's view, whatever it held; ``began_anew`` is called
    when the cluster is whole again.
    """

    _view: ClusterView
    _ports: SchedulerPorts
    _config: SchedulerConfig
    _committer: Committer
    _modes: ModeSupervisor
    _announced: Announced
    _events: EventPublisher
    _writer: ImportWriter
    _has_lost_sight: Callable[[], bool]
    _take_store: Callable[[Snapshot], None]
    _began_anew: Callable[[], Awaitable[None]]
    _token: Callable[[], str]

    _busy: bool = field(default=False, init=False)
    _cluster_id: str = field(default="", init=False)
    """Of the marker that was taken away to be written anew."""

    async def import_from_agents(self, order: ImportFromAgents) -> ImportAnswer:
        """Rebuild records from what agents run; see ``RecoveryApi.import_from_agents``."""
        async with self._alone():
            ground = await self._ground()
            nodes = self._nodes(ground)
            asked = _chosen(nodes, order.node_ids)
            listed, silent = await self._listed(asked)
            unheard = set(self._expected()) - nodes.keys()
            if not order.node_ids:
                silent = {**silent, **dict.fromkeys(unheard, "it has not presented itself yet")}
            items = plan_import(listed, ground.recorded, self._older_than())
            if not order.dry_run:
                rest = nodes.keys() - listed.keys() | unheard
                await self._carry_out(order, ground, [nodes[each] for each in listed], items, rest)
            return ImportAnswer(
                items, tuple(sorted(listed)), silent, order.dry_run, self._modes.state.mode
            )

    async def acknowledge_empty(self, order: AcknowledgeEmpty) -> OperatingMode:
        """Take the store as it is; see ``RecoveryApi.acknowledge_empty``."""
        async with self._alone():
            if not self._modes.state.is_recovery:
                raise RefusedError(
                    f"nothing to acknowledge: the mode is {self._modes.state.mode}, not recovery"
                )
            cause = self._modes.state.reason
            await self._begin(await self._ports.store.snapshot())
            await self._end()
            self._events.publish(
                EventType.STORE_ACKNOWLEDGED,
                reason=order.reason,
                details={"source": order.actor, "cause": cause},
            )
            return self._modes.state.mode

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        if self._modes.is_frozen and not self._modes.state.is_recovery:
            raise FrozenError(frozen_text(self._modes.state))
        if self._busy:
            raise RefusedError("another import or acknowledgement is under way: wait for its end")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    # Looking

    async def _ground(self) -> _Ground:
        if not self._modes.state.is_recovery:
            return _Ground(self._view)
        snapshot = await self._ports.store.snapshot()
        stored = ClusterView()
        stored.load(snapshot)
        remembered = self._view if self._has_lost_sight() else None
        return _Ground(stored, remembered, snapshot)

    def _older_than(self) -> datetime | None:
        marker = self._view.marker()
        return None if self._modes.state.is_recovery or marker is None else marker.value.began_by

    def _nodes(self, ground: _Ground) -> Mapping[NodeId, Node]:
        """Every node that is known from anywhere; the newest word says where its agent listens."""
        nodes: dict[NodeId, Node] = {}
        for view in filter(None, (ground.remembered, ground.stored)):
            nodes.update((node.id, node) for node in view.values(Kind.NODE, Node))
        if self._modes.state.is_recovery:
            now = self._ports.clock.now()
            for node_id, request in self._announced.nodes.items():
                nodes[node_id] = register(nodes.get(node_id), request, now)
        if not nodes:
            raise RefusedError(
                "no node is known: agents present themselves within half a minute while they run;"
                " without agents, acknowledge the store as it is"
            )
        return nodes

    def _expected(self) -> Sequence[NodeId]:
        """The nodes that were members when the store was last whole."""
        known = self._modes.known
        return known.nodes if known and self._modes.state.is_recovery else ()

    async def _listed(
        self, nodes: Sequence[Node]
    ) -> tuple[Mapping[NodeId, Sequence[AgentReport]], Mapping[NodeId, str]]:
        """The full lists, and why others gave none: never taken for an empty one."""
        slots = asyncio.Semaphore(self._config.reconcile_concurrency)

        async def ask(node: Node) -> Sequence[AgentReport] | Refused | Unreachable:
            async with slots:
                return await self._ports.agents.list(node, self._config.agent_rpc_timeout)

        answers = await asyncio.gather(*map(ask, nodes))
        listed: dict[NodeId, Sequence[AgentReport]] = {}
        silent: dict[NodeId, str] = {}
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, Refused | Unreachable):
                silent[node.id] = answer.message
            else:
                listed[node.id] = answer
        return listed, silent

    # Doing

    async def _carry_out(
        self,
        order: ImportFromAgents,
        ground: _Ground,
        nodes: Sequence[Node],
        items: Sequence[ImportItem],
        rest: set[NodeId],
    ) -> None:
        """``rest``: the nodes that gave no list; while there are any, recovery goes on."""
        if ground.snapshot is not None:
            await self._begin(ground.snapshot)
        for node in nodes:
            await self._writer.write(node, (item for item in items if item.node_id == node.id))
        if ground.snapshot is not None and not rest:
            await self._end()
        decisions = [item.decision for item in items]
        self._events.publish(
            EventType.WORKLOADS_IMPORTED,
            reason=order.reason or "imported from the agents",
            details={
                "source": order.actor,
                "nodes": str(len(nodes)),
                "nodes_left": str(len(rest)),
                **{each.value: str(decisions.count(each)) for each in Decision},
            },
        )

    async def _begin(self, snapshot: Snapshot) -> None:
        """This store is the one from now on, and without a marker until it is whole."""
        self._take_store(snapshot)
        marker = self._view.marker()
        self._committer.marker_revision = marker.create_revision if marker else 0
        if marker is not None:
            self._cluster_id = marker.value.cluster_id
            await self._committer.transact(
                lambda: (Transaction().delete(Key.marker(), self._view.marker()), None)
            )
            self._committer.marker_revision = 0

    async def _end(self) -> None:
        """A new life of the marker, and normal mode."""
        now = self._ports.clock.now()
        known = self._modes.known
        cluster_id = (
            self._cluster_id
            or (known.cluster_id if known else "")
            or f"{self._config.cluster_id}-{self._token()[:8]}"
        )
        # Milliseconds grow faster than any store's revisions, which epochs are; and a clock that
        # was put back must not make this life look older than the one before.
        before = known.epoch_base + known.revision + 1 if known else 0
        base = max(int(now.timestamp() * 1000), before)
        written = ClusterMarker(cluster_id, now, MarkerState.ACTIVE, epoch_base=base)

        def decide() -> tuple[Transaction, None]:
            tx = Transaction().put(Key.marker(), written, self._view.marker())
            ledger = self._view.ledger()
            built = ledger.value if ledger else LedgerState(self._is_ours_alone(), now)
            return tx.put(Key.ledger(), built, ledger), None

        await self._committer.transact(decide)
        marker = self._view.marker()
        assert marker is not None, "this is a bug: the marker was just written"
        self._take_store(await self._ports.store.snapshot())
        await self._modes.accept(marker)
        self._announced.clear()
        await self._began_anew()

    def _is_ours_alone(self) -> bool:
        """Whether no ledger has to be built over another scheduler's records."""
        return not any(map(is_of_another, self._view.values(Kind.WORKLOAD, Workload)))


def _chosen(nodes: Mapping[NodeId, Node], wanted: Sequence[NodeId]) -> Sequence[Node]:
    unknown = [each for each in wanted if each not in nodes]
    if unknown:
        raise NotFoundError("node", unknown[0])
    return [nodes[each] for each in sorted(set(wanted) or nodes)]

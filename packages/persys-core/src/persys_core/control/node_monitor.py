"""NodeMonitor: follows every node's liveness on every replica, and on the leader acts on it.

A node that falls silent or comes back is published once, and its workloads are looked at; how
fast work may leave lost nodes is decided in ``nodes.eviction``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from attrs import define, field

from persys_core.control.agent_calls import NodeReach
from persys_core.control.events import EventPublisher
from persys_core.control.fleet_feed import FleetFeed
from persys_core.control.leaving_work import work_to_end, work_to_leave
from persys_core.control.node_views import NodeViews
from persys_core.control.releases import Releases
from persys_core.control.view import ClusterView
from persys_core.model.counted import counted
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.nodes.eviction import EvictionPolicy, EvictionState, plan_evictions
from persys_core.nodes.liveness import NodeCondition
from persys_core.ports.agents import Agents
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Kind
from persys_core.ports.liveness import Liveness
from persys_core.sharding.hashing import UNASSIGNED

__all__ = ["NodeMonitor"]


@define(eq=False)
class NodeMonitor:
    """One replica's watch over the nodes."""

    _view: ClusterView
    _liveness: Liveness
    _agents: Agents
    _feed: FleetFeed
    _node_views: NodeViews
    _events: EventPublisher
    _clock: Clock
    _reach: NodeReach
    _policy: EvictionPolicy

    _conditions: dict[NodeId, NodeCondition] = field(factory=dict, init=False)
    _told: set[tuple[NodeId, EventType]] = field(factory=set, init=False)
    _evictions: EvictionState = field(factory=EvictionState, init=False)
    _may_move: frozenset[NodeId] = field(default=frozenset(), init=False)
    releases: Releases = field(factory=Releases, init=False)
    """Whether the work of the nodes that were released has been seen to."""
    owns: Callable[[NodeId], bool] = field(default=lambda _: True, init=False)
    """Which nodes this replica acts for while it does."""
    on_condition: Callable[[NodeId], None] | None = field(default=None, init=False)
    """Set while this replica leads: has everything on the node looked at."""

    def take_over(self) -> None:
        """A new leader counts nobody as released or lost yet (field report N02)."""
        self._evictions = EvictionState()
        self._may_move = frozenset()
        self.releases = Releases()

    @property
    def alarms(self) -> tuple[str, ...]:
        """What an operator must know of the nodes as a whole; mostly nothing."""
        return (self._mass_loss(),) if self._evictions.mass_loss else ()

    def may_move(self, node_id: NodeId) -> bool:
        """Whether work may leave this lost node now."""
        return node_id in self._may_move

    @property
    def released(self) -> tuple[NodeId, ...]:
        """The lost nodes that work may leave now, sorted."""
        return tuple(sorted(self._may_move))

    def heard(self, node_id: NodeId) -> None:
        """The node gave a sign of life: what that changes is not left to the next tick."""
        if not self._feed.is_alive(node_id):
            self._follow(node_id)

    async def tick(self) -> None:
        """One look at all nodes."""
        for node_id in list(self._view.all(Kind.NODE)):
            self._follow(node_id)
        for gone in [node for node in self._conditions if self._view.node(node) is None]:
            await self._forget(gone)
        self._release_lost()
        if self.on_condition is not None:
            self._follow_drains(self.on_condition)

    def _follow_drains(self, look: Callable[[NodeId], None]) -> None:
        """Tell, once each, that a drain reached its deadline, or that nothing is left."""
        draining = {
            node.id: node.intent.drain
            for node in self._view.values(Kind.NODE, Node)
            if node.intent.drain is not None and self.owns(node.id)
        }
        self._told = {told for told in self._told if told[0] in draining}
        for node_id, order in draining.items():
            left = len(work_to_leave(self._view, node_id)) + len(work_to_end(self._view, node_id))
            if not left:
                self._tell_drain(node_id, EventType.NODE_DRAINED, "everything has left the node")
            elif order.deadline_at is not None and self._clock.now() >= order.deadline_at:
                then = "is stopped" if order.force else "stays"
                have = "has" if left == 1 else "have"
                text = f"{counted(left, 'workload')} {have} not left; what is left {then}"
                if self._tell_drain(node_id, EventType.DRAIN_DEADLINE, text):
                    look(node_id)

    def _tell_drain(self, node_id: NodeId, kind: EventType, text: str) -> bool:
        """Whether it was news."""
        if (node_id, kind) in self._told:
            return False
        self._told.add((node_id, kind))
        self._events.publish(kind, node_id=node_id, reason=text)
        return True

    async def _forget(self, node_id: NodeId) -> None:
        """The node left the cluster: its connection is closed, its work is looked at."""
        self._conditions.pop(node_id, None)
        self._reach.forget(node_id)
        await self._agents.forget(node_id)
        await self._liveness.forget(node_id)
        if self.on_condition is not None:
            self.on_condition(node_id)

    def _follow(self, node_id: NodeId) -> None:
        condition = self._node_views.condition(node_id)
        before = self._conditions.get(node_id)
        if condition is NodeCondition.READY and before is not condition:
            # Calls that failed while it was silent say nothing of the node that is back.
            self._reach.forget(node_id)
        uncallable = self._reach.uncallable_since(node_id, len(self._view.all(Kind.NODE)))
        ready = condition is NodeCondition.READY
        self._feed.set_alive(node_id, alive=ready and uncallable is None)
        self._conditions[node_id] = condition
        if before is condition or self.on_condition is None or not self.owns(node_id):
            return
        if before is not None:
            self._tell(node_id, condition)
        self.on_condition(node_id)

    def _tell(self, node_id: NodeId, condition: NodeCondition) -> None:
        reason = self._node_views.health(node_id).reason
        if condition is NodeCondition.NOT_READY:
            self._events.publish(
                EventType.NODE_LOST,
                node_id=node_id,
                reason=reason,
                details={"status": "NotReady", "source": "monitor"},
            )
        elif condition is NodeCondition.READY:
            self._events.publish(
                EventType.NODE_READY,
                node_id=node_id,
                reason=reason,
                details={"status": "Ready", "source": "heartbeat"},
            )

    def _release_lost(self) -> None:
        silent = self._silent_since()
        lost = [
            node
            for node, condition in self._conditions.items()
            if condition is NodeCondition.LOST and node in silent and self._view.assigned_to(node)
        ]
        plan = plan_evictions(
            self._evictions,
            total=len(self._view.all(Kind.NODE)),
            silent_since=silent,
            lost=lost,
            policy=self._policy,
            now=self._clock.now(),
            under_way=self.releases.under_way(self._view),
        )
        before, self._may_move = self._may_move, plan.may_move
        self._evictions = plan.state
        if self.on_condition is None:
            return
        if plan.mass_loss_began and self.owns(UNASSIGNED):
            self._events.publish(EventType.MASS_NODE_LOSS, reason=self._mass_loss())
        for node_id in sorted(plan.may_move - before):
            if self.owns(node_id):
                self.releases.begin(node_id, self._view.assigned_to(node_id))
            self.on_condition(node_id)

    def _mass_loss(self) -> str:
        return (
            f"mass node loss: {len(self._silent_since())} of {len(self._view.all(Kind.NODE))}"
            " nodes fell silent together; no work is moved until enough of them are back"
        )

    def _silent_since(self) -> dict[NodeId, datetime]:
        return {
            node: since
            for node, condition in self._conditions.items()
            if condition in (NodeCondition.NOT_READY, NodeCondition.LOST)
            and (since := self._liveness.expired_since(node)) is not None
        }

"""NodeViews: a node's record, liveness, ledger and measured use, put side by side."""

from __future__ import annotations

from datetime import datetime, timedelta

from persys_core.control.answers import ClusterTotals, NodeView
from persys_core.control.view import ClusterView
from persys_core.model.errors import NotFoundError
from persys_core.model.ids import NodeId
from persys_core.model.node import Node, OperatorIntent
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation
from persys_core.nodes.liveness import LivenessPolicy, NodeCondition, NodeHealth, judge_node
from persys_core.nodes.operations import overcommitted_dimensions
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Kind
from persys_core.ports.liveness import Liveness
from persys_core.ports.telemetry import Telemetry

__all__ = ["NodeViews"]


class NodeViews:
    """Judges and shows nodes; also remembers when each was last listed in full."""

    def __init__(
        self,
        view: ClusterView,
        liveness: Liveness,
        telemetry: Telemetry,
        clock: Clock,
        policy: LivenessPolicy,
    ) -> None:
        self._view = view
        self._liveness = liveness
        self._telemetry = telemetry
        self._clock = clock
        self._policy = policy
        self._listed_at: dict[NodeId, datetime] = {}
        self.lag = timedelta(0)
        """How late this process is itself; added to every deadline (field report N08)."""

    def health(self, node_id: NodeId) -> NodeHealth:
        """The node's health now; of a node without a record too."""
        stored = self._view.node(node_id)
        return judge_node(
            alive=self._liveness.is_alive(node_id),
            expired_since=self._liveness.expired_since(node_id),
            intent=stored.value.intent if stored else OperatorIntent(),
            now=self._clock.now(),
            policy=self._policy,
            lag=self.lag,
        )

    def condition(self, node_id: NodeId) -> NodeCondition:
        """The node as decisions see it."""
        if self._view.node(node_id) is None:
            return NodeCondition.GONE
        if self._liveness.is_alive(node_id):
            # Asked for at every tick and every look: spares the sentence that ``health`` makes.
            return NodeCondition.READY
        return self.health(node_id).condition

    def is_heard(self, node_id: NodeId) -> bool:
        """Whether the node exists and its lease holds."""
        return self.condition(node_id) is NodeCondition.READY

    def listed_now(self, node_id: NodeId) -> None:
        """Everything that the node has was seen just now."""
        self._listed_at[node_id] = self._clock.now()

    def listed_within(self, node_id: NodeId, age: timedelta) -> bool:
        """Whether a full listing of the node is younger than ``age``."""
        listed_at = self._listed_at.get(node_id)
        return listed_at is not None and self._clock.now() - listed_at < age

    def of(self, node_id: NodeId) -> NodeView:
        """The node as shown; NotFoundError."""
        stored = self._view.node(node_id)
        if stored is None:
            raise NotFoundError("node", node_id)
        ledger = self._view.allocation(node_id)
        allocation = ledger.value if ledger else Allocation(node_id)
        health = self.health(node_id)
        return NodeView(
            node=stored.value,
            status=health.status,
            status_reason=health.reason,
            allocated=allocation.charged,
            workload_count=allocation.workload_count,
            last_heartbeat=self._liveness.last_seen(node_id),
            usage=self._telemetry.node_usage(node_id),
            overcommitted=bool(overcommitted_dimensions(stored.value, allocation)),
        )

    def totals(self) -> ClusterTotals:
        """The sums over all nodes."""
        nodes = list(self._view.values(Kind.NODE, Node))
        ledgers = (self._view.allocation(node.id) for node in nodes)
        usages = (self._telemetry.node_usage(node.id) for node in nodes)
        capacity = Resources.total(node.capacity for node in nodes)
        return ClusterTotals(
            allocatable=capacity - Resources.total(node.reserved for node in nodes),
            allocated=Resources.total(ledger.value.charged for ledger in ledgers if ledger),
            used=Resources.total(usage.used for usage in usages if usage),
        )

"""AgentCalls: calls to agents under a leadership, with the memory of who did not answer.

The lease is compared with the clock at each call, synchronously (architecture §3.3). A node that
did not answer is left alone for a while, longer each time, so that one dead node costs little;
any sign of life ends that at once.
"""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from persys_core.control.committer import Committer
from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.ports.agents import (
    ApplyOutcome,
    ApplyRequest,
    DeleteOutcome,
    DeleteRequest,
    ListOutcome,
    StatusOutcome,
    Unreachable,
)
from persys_core.ports.membership import Leadership
from persys_core.ports.observer import Metric

__all__ = ["AgentCalls", "NodeReach"]


@frozen
class _Silence:
    failures: int
    until: datetime


class NodeReach:
    """Which agents did not answer lately, and until when they are left alone."""

    def __init__(self, ports: SchedulerPorts, config: SchedulerConfig) -> None:
        self._clock = ports.clock
        self._policy = config.retry
        self._silent: dict[NodeId, _Silence] = {}

    def failed(self, node_id: NodeId) -> datetime:
        """The agent did not answer; until when it is left alone."""
        known = self._silent.get(node_id)
        failures = known.failures + 1 if known else 1
        until = self._clock.now() + self._policy.infrastructure_delay(failures)
        self._silent[node_id] = _Silence(failures, until)
        return until

    def answered(self, node_id: NodeId) -> None:
        """The agent gave a sign of life."""
        self._silent.pop(node_id, None)

    def blocked_until(self, node_id: NodeId) -> datetime | None:
        """Until when the agent is left alone; ``None`` where it may be called."""
        known = self._silent.get(node_id)
        if known is None or known.until <= self._clock.now():
            return None
        return known.until


class AgentCalls:
    """The calls of one leadership."""

    def __init__(
        self,
        ports: SchedulerPorts,
        config: SchedulerConfig,
        committer: Committer,
        leadership: Leadership,
        reach: NodeReach,
    ) -> None:
        self._agents = ports.agents
        self._observer = ports.observer
        self._timeout = config.agent_rpc_timeout
        self._committer = committer
        self._leadership = leadership
        self._reach = reach

    async def apply(self, node: Node, request: ApplyRequest) -> ApplyOutcome:
        """Send a workload, as an intent that was committed before says."""
        self._committer.require(self._leadership)
        outcome = await self._agents.apply(node, request, self._timeout)
        self._note(node.id, "ApplyWorkload", outcome)
        return outcome

    async def delete(self, node: Node, request: DeleteRequest) -> DeleteOutcome:
        """Have a workload removed, as an intent that was committed before says."""
        self._committer.require(self._leadership)
        outcome = await self._agents.delete(node, request, self._timeout)
        self._note(node.id, "DeleteWorkload", outcome)
        return outcome

    async def status(self, node: Node, workload_id: WorkloadId) -> StatusOutcome:
        """Ask about one workload."""
        self._committer.require(self._leadership)
        outcome = await self._agents.status(node, workload_id, self._timeout)
        self._note(node.id, "GetWorkloadStatus", outcome)
        return outcome

    async def list(self, node: Node) -> ListOutcome:
        """Ask for everything that the agent has."""
        self._committer.require(self._leadership)
        outcome = await self._agents.list(node, self._timeout)
        self._note(node.id, "ListWorkloads", outcome)
        return outcome

    async def last_error(self, node: Node, workload_id: WorkloadId) -> str:
        """Ask why the last task of a workload failed."""
        self._committer.require(self._leadership)
        return await self._agents.last_error(node, workload_id, self._timeout)

    def _note(self, node_id: NodeId, rpc: str, outcome: object) -> None:
        answered = not isinstance(outcome, Unreachable)
        if answered:
            self._reach.answered(node_id)
        else:
            self._reach.failed(node_id)
        result = "answered" if answered else "unreachable"
        self._observer.increment(Metric.AGENT_CALLS, {"rpc": rpc, "result": result})

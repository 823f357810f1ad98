"""AgentCalls: calls to agents under a leadership, with the memory of who did not answer.

The lease is compared with the clock at each call, synchronously (architecture §3.3). A node that
did not answer is left alone for a while, longer each time, so that one dead node costs little;
any sign of life ends that at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from attrs import evolve, frozen

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
    NotFound,
    Refused,
    StatusOutcome,
    Unreachable,
)
from persys_core.ports.membership import Leadership
from persys_core.ports.observer import Metric
from persys_core.ports.tracer import Span, SpanName

__all__ = ["AgentCalls", "NodeReach"]

T = TypeVar("T")


@frozen
class _Silence:
    failures: int
    until: datetime


@frozen
class _Uncalled:
    """When the first and the newest call failed of those that nothing was answered between."""

    since: datetime
    last: datetime


class NodeReach:
    """Which agents did not answer lately, and until when they are left alone.

    A beat ends that, since the agent may be back; but beats reach other replicas, too, so that none
    is left alone for longer than half a lease. That it could not be called for long, although it
    beats, is known apart, and ended by an answered call alone (defect C15).
    """

    def __init__(self, ports: SchedulerPorts, config: SchedulerConfig) -> None:
        self._clock = ports.clock
        self._policy = config.retry
        self._grace = config.liveness.unavailable_grace
        self._longest = config.liveness.lease / 2
        self._silent: dict[NodeId, _Silence] = {}
        self._uncalled: dict[NodeId, _Uncalled] = {}

    def failed(self, node_id: NodeId) -> datetime:
        """The agent did not answer; until when it is left alone.

        Calls that were under way together fail together, and count as one.
        """
        now, known = self._clock.now(), self._silent.get(node_id)
        calls = self._uncalled.get(node_id, _Uncalled(now, now))
        self._uncalled[node_id] = evolve(calls, last=now)
        if known is not None and now < known.until:
            return known.until
        failures = known.failures + 1 if known else 1
        until = now + min(self._policy.infrastructure_delay(failures), self._longest)
        self._silent[node_id] = _Silence(failures, until)
        return until

    def heard(self, node_id: NodeId) -> None:
        """The agent gave a sign of life."""
        self._silent.pop(node_id, None)

    def answered(self, node_id: NodeId) -> None:
        """The agent answered a call."""
        self.heard(node_id)
        self._uncalled.pop(node_id, None)

    def forget(self, node_id: NodeId) -> None:
        """The node left the cluster, or is back: nothing is held against it."""
        self.answered(node_id)

    def take_over(self) -> None:
        """Who calls agents from now on counts anew: what failed in an earlier term is long ago."""
        self._uncalled.clear()

    def is_uncalled(self, node_id: NodeId) -> bool:
        """Whether the last call failed; then only a call shows whether the next one would not."""
        return node_id in self._uncalled

    def uncallable_since(self, node_id: NodeId, nodes: int) -> datetime | None:
        """Since when the agent answers no call, once calls failed for the whole grace.

        Time in which nobody called it says nothing. ``None`` where more than half of the ``nodes``
        of the cluster are like that: then it is this replica that cannot call.
        """
        calls = self._uncalled.get(node_id)
        if calls is None or calls.last < calls.since + self._grace:
            return None
        return calls.since if len(self._uncalled) * 2 <= nodes else None

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
        self._clock = ports.clock
        self._observer = ports.observer
        self._timeout = config.agent_rpc_timeout
        self._committer = committer
        self._leadership = leadership
        self._reach = reach

    async def apply(self, node: Node, request: ApplyRequest) -> ApplyOutcome:
        """Send a workload, as an intent that was committed before says."""
        return await self._timed(
            node.id, "ApplyWorkload", lambda: self._agents.apply(node, request, self._timeout)
        )

    async def delete(self, node: Node, request: DeleteRequest) -> DeleteOutcome:
        """Have a workload removed, as an intent that was committed before says."""
        return await self._timed(
            node.id, "DeleteWorkload", lambda: self._agents.delete(node, request, self._timeout)
        )

    async def status(self, node: Node, workload_id: WorkloadId) -> StatusOutcome:
        """Ask about one workload."""
        return await self._timed(
            node.id,
            "GetWorkloadStatus",
            lambda: self._agents.status(node, workload_id, self._timeout),
        )

    async def list(self, node: Node) -> ListOutcome:
        """Ask for everything that the agent has."""
        return await self._timed(
            node.id, "ListWorkloads", lambda: self._agents.list(node, self._timeout)
        )

    async def last_error(self, node: Node, workload_id: WorkloadId) -> str:
        """Ask why the last task of a workload failed."""
        return await self._timed(
            node.id,
            "ListActions",
            lambda: self._agents.last_error(node, workload_id, self._timeout),
        )

    async def _timed(self, node_id: NodeId, rpc: str, call: Callable[[], Awaitable[T]]) -> T:
        self._committer.require(self._leadership)
        with self._observer.span(SpanName.AGENT_CALL, node_id=node_id, operation=rpc) as span:
            return await self._observed(node_id, rpc, call, span)

    async def _observed(
        self, node_id: NodeId, rpc: str, call: Callable[[], Awaitable[T]], span: Span
    ) -> T:
        began = self._clock.monotonic()
        outcome = await call()
        if isinstance(outcome, Unreachable):
            self._reach.failed(node_id)
        elif not isinstance(outcome, str):  # an empty error text may also be no answer
            self._reach.answered(node_id)
        result = _result_of(outcome)
        span.ends_as(result)
        labels = {"rpc": rpc, "result": result}
        self._observer.increment(Metric.AGENT_CALLS, labels)
        self._observer.record(Metric.AGENT_CALLS, self._clock.monotonic() - began, labels)
        return outcome


def _result_of(outcome: object) -> str:
    """A closed set, fit for a label: the three negatives of the port, or answered."""
    match outcome:
        case Unreachable():
            return "unreachable"
        case Refused():
            return "refused"
        case NotFound():
            return "not_found"
        case _:
            return "answered"

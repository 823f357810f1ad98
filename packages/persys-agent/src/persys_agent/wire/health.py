"""What HealthCheck answers: the runtimes' own words, and what was measured last.

Decided here: healthy means that every runtime that ever worked on this node works now, and that
no loop of the agent has died. A runtime that was never there makes nobody ill.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from persys_agent.host.usage import HostUse
from persys_agent.reporting.capabilities import Capabilities
from persys_agent.state.store import AgentState
from persys_proto.agent.v1 import agent_pb2 as wire

__all__ = ["HealthView"]


@frozen
class HealthView:
    """``detected`` and ``used`` give the newest detection and measurement, ``problem`` what is
    wrong with the agent itself (empty while nothing is)."""

    version: str
    state: AgentState
    detected: Callable[[], Capabilities]
    used: Callable[[], HostUse]
    problem: Callable[[], str] = lambda: ""

    def response(self) -> wire.HealthCheckResponse:
        """The answer, without asking anybody."""
        runtimes = self.detected().runtimes
        ill = {
            kind
            for kind, found in runtimes.items()
            if not found.is_available and kind in self.state.kinds_used
        }
        used = self.used()
        problem = self.problem()
        statuses = {
            str(kind): "healthy" if found.is_available else f"unhealthy: {found.detail}"
            for kind, found in runtimes.items()
        }
        if problem:
            statuses["agent"] = f"unhealthy: {problem}"
        return wire.HealthCheckResponse(
            healthy=not ill and not problem,
            version=self.version,
            runtime_status=statuses,
            memory_utilization=used.memory_percent,
            cpu_utilization=used.cpu_percent,
            disk_utilization=used.disk_percent,
        )

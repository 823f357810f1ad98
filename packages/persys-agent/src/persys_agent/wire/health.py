"""What HealthCheck answers: the runtimes' own words, and what was measured last.

Decided here: healthy means that every runtime that ever worked on this node works now, that no loop
of the agent has died, and that no other agent has its node id. A runtime that was never there makes
nobody ill, nor does a scheduler that is away.
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

    def runtimes(self) -> dict[str, str]:
        """A word for each runtime: ``healthy``, or what is wrong."""
        return {
            str(kind): "healthy" if found.is_available else f"unhealthy: {found.detail}"
            for kind, found in self.detected().runtimes.items()
        }

    def ailment(self) -> str:
        """Why the agent cannot do all of its work; empty while it can."""
        found = self.detected().runtimes
        ill = [
            f"{kind} ({found[kind].detail})"
            for kind in sorted(self.state.kinds_used)
            if kind in found and not found[kind].is_available
        ]
        return self.problem() or (f"no answer from: {', '.join(ill)}" if ill else "")

    def response(self) -> wire.HealthCheckResponse:
        """The answer, without asking anybody."""
        used, ailment = self.used(), self.ailment()
        statuses = self.runtimes()
        if self.problem():
            statuses["agent"] = f"unhealthy: {self.problem()}"
        return wire.HealthCheckResponse(
            healthy=not ailment,
            version=self.version,
            runtime_status=statuses,
            memory_utilization=used.memory_percent,
            cpu_utilization=used.cpu_percent,
            disk_utilization=used.disk_percent,
        )

"""The agent's service on the wire: `persys.agent.v1`, as every scheduler in the field speaks it."""

from persys_agent.wire.service import AgentService

__all__ = ["AgentService"]

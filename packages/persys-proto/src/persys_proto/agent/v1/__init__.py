"""persys.agent.v1: what the scheduler asks of a compute agent."""

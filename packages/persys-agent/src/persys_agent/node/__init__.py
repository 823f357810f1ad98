"""One node: its parts put together, served and kept going until it is told to stop."""

from persys_agent.node.assembly import Assembly, NodeOptions, assemble
from persys_agent.node.serving import Served, serve

__all__ = ["Assembly", "NodeOptions", "Served", "assemble", "serve"]

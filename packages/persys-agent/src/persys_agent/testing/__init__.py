"""Doubles of what the agent works on, for tests and for trying things without Docker.

They keep their side of the ports (``runtimes.port``, ``storage.port``), and break on demand.
"""

from persys_agent.testing.inline_state import InlineState
from persys_agent.testing.memory_runtime import MemoryHost, MemoryRuntime
from persys_agent.testing.memory_storage import MemoryDisks, MemoryStorage

__all__ = ["InlineState", "MemoryDisks", "MemoryHost", "MemoryRuntime", "MemoryStorage"]

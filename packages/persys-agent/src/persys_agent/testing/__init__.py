"""The contract suites of the agent's ports, and doubles of what it works on.

The doubles keep their side of the ports (``runtimes.port``, ``storage.port``), and break on demand.
The suites (``runtime``, ``interactive``) need pytest, and are imported by their own names.
"""

from persys_agent.testing.inline_state import InlineState
from persys_agent.testing.memory_runtime import MemoryHost, MemoryRuntime
from persys_agent.testing.memory_storage import MemoryDisks, MemoryStorage

__all__ = ["InlineState", "MemoryDisks", "MemoryHost", "MemoryRuntime", "MemoryStorage"]

"""The agent's work: tasks carried out, workloads kept as they should be, and what is seen told."""

from persys_agent.engine.backends import Backends
from persys_agent.engine.board import NothingKnownError, StatusBoard
from persys_agent.engine.executor import Executor, Limits
from persys_agent.engine.fence import LeaseFence
from persys_agent.engine.inventory import Inventory
from persys_agent.engine.local_loop import LocalLoop
from persys_agent.engine.wishes import Wish, wish_from
from persys_agent.engine.works import Works

__all__ = [
    "Backends",
    "Executor",
    "Inventory",
    "LeaseFence",
    "Limits",
    "LocalLoop",
    "NothingKnownError",
    "StatusBoard",
    "Wish",
    "Works",
    "wish_from",
]

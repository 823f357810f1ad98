"""``Works``: the parts of the engine that belong together, for whoever needs several of them."""

from __future__ import annotations

from attrs import frozen

from persys_agent.engine.board import StatusBoard
from persys_agent.engine.executor import Executor
from persys_agent.engine.inventory import Inventory
from persys_agent.state.store import AgentState
from persys_agent.tasks.queue import TaskQueue
from persys_core.ports.clock import Clock

__all__ = ["Works"]


@frozen
class Works:
    """One node's state, its tasks, what carries them out, and what looks and tells."""

    state: AgentState
    queue: TaskQueue
    executor: Executor
    inventory: Inventory
    board: StatusBoard
    clock: Clock

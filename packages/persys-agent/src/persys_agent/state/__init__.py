"""What the agent remembers: its workloads, their conditions and volumes, its tasks, the epoch."""

from persys_agent.state.records import Condition, Task, TaskKind, TaskState, Workload
from persys_agent.state.store import AgentState, Caller
from persys_agent.state.thread import StateThread

__all__ = [
    "AgentState",
    "Caller",
    "Condition",
    "StateThread",
    "Task",
    "TaskKind",
    "TaskState",
    "Workload",
]

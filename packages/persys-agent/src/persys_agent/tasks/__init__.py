"""What was accepted and is to be carried out: one line per workload, in order, kept on disk."""

from persys_agent.tasks.history import TaskHistory
from persys_agent.tasks.queue import TaskQueue

__all__ = ["TaskHistory", "TaskQueue"]

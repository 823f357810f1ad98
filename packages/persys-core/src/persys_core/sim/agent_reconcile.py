"""The local loop of a simulated agent: what it does by itself about workloads that are not right.

Decided here: what the agents in the field do, defects included, since a scheduler has to live
with them: finished jobs are started again on every pass, failed containers never are, and what
the runtime lost is created again without end.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import define

from persys_core.model.observation import AgentState
from persys_core.model.states import DesiredState
from persys_core.sim.agent_execution import Executor
from persys_core.sim.agent_failures import RETRYABLE_CLASSES, classify_like_agents
from persys_core.sim.agent_store import Row
from persys_core.sim.agent_tasks import TaskQueue

__all__ = ["LocalLoop"]

_PENDING_LIMIT = timedelta(minutes=5)
_RETRIES = 3
_FIRST_RETRY = timedelta(seconds=5)
_TERMINAL = "retry_terminal"


@define(eq=False)
class LocalLoop:
    """One pass over all rows per interval; a workload whose lock is taken is left alone."""

    executor: Executor
    queue: TaskQueue

    def run_once(self, now: datetime) -> None:
        """Look at every workload and set going what it needs."""
        for row in self.executor.store.in_order():
            if self.queue.hold(row.workload_id):
                self._reconcile(row, now)

    def _reconcile(self, row: Row, now: datetime) -> None:
        look = self.executor.look(row)
        self.executor.refresh(row, now)
        wants_running = row.desired is DesiredState.RUNNING
        match look.state:
            case AgentState.UNKNOWN if wants_running and look.is_missing:
                row.metadata["failure_reason"] = "RUNTIME_RESOURCE_MISSING"
                row.metadata.setdefault("last_error", look.message)
                self._create(row, now)
            case AgentState.STOPPED if wants_running:
                self._start(row, now)
            case AgentState.FAILED if wants_running:
                self._note_failure(row, look.message, now)
                self._release(row, now)
            case AgentState.PENDING if wants_running:
                self._wait_for_start(row, now)
            case AgentState.RUNNING if not wants_running:
                self.executor.stop(row, now, lambda _, at: self._release(row, at))
            case _:
                self._release(row, now)

    def _release(self, row: Row, now: datetime) -> None:
        self.queue.release(row.workload_id, now)

    def _create(self, row: Row, now: datetime) -> None:
        behaviour = self.executor.behaviour(row)
        self.executor.create(row, behaviour, now, lambda _, at: self._created(row, at))

    def _created(self, row: Row, now: datetime) -> None:
        if row.state is AgentState.RUNNING:
            row.metadata.pop("failure_reason", None)
        self._release(row, now)

    def _start(self, row: Row, now: datetime) -> None:
        if row.metadata.get(_TERMINAL) == "true" or _waits(row, now):
            self._release(row, now)
        elif row.message == "no containers":
            self._create(row, now)
        else:
            behaviour = self.executor.behaviour(row)
            self.executor.start(row, behaviour, now, lambda _, at: self._was_started(row, at))

    def _was_started(self, row: Row, now: datetime) -> None:
        if row.state is AgentState.FAILED:
            self._note_failure(row, row.metadata.get("last_error", row.message), now)
        self._release(row, now)

    def _note_failure(self, row: Row, cause: str, now: datetime) -> None:
        """The retry tracker: three attempts are noted, then it gives up for good."""
        if row.metadata.get(_TERMINAL) == "true":
            return
        kind = classify_like_agents(cause)
        attempts = int(row.metadata.get("retry_attempts", "0")) + 1
        row.metadata.update(failure_reason=kind, last_error=cause, last_runtime_error=cause)
        if kind not in RETRYABLE_CLASSES or attempts > _RETRIES:
            row.metadata[_TERMINAL] = "true"
            row.metadata["retry_terminal_reason"] = f"non-retryable failure ({kind})"
            return
        row.metadata["retry_attempts"] = str(attempts)
        wait = _FIRST_RETRY * 2 ** (attempts - 1)
        row.metadata["next_retry_time"] = (now + wait).isoformat()

    def _wait_for_start(self, row: Row, now: datetime) -> None:
        since = row.metadata.setdefault("pending_since", now.isoformat())
        row.message = "workload pending; waiting for startup completion"
        if now - datetime.fromisoformat(since) < _PENDING_LIMIT:
            self._release(row, now)
            return
        row.metadata["pending_recovery_action"] = "restart"
        row.metadata["pending_recovery_reason"] = "pending for more than 5m0s"
        self.executor.stop(row, now, lambda _, at: self._restart(row, at))

    def _restart(self, row: Row, now: datetime) -> None:
        behaviour = self.executor.behaviour(row)
        self.executor.start(row, behaviour, now, lambda error, at: self._restarted(row, error, at))

    def _restarted(self, row: Row, error: str, now: datetime) -> None:
        if error:
            self.executor.runtime.remove(row.workload_id, now)
            row.desired = DesiredState.STOPPED
            row.fail(
                f"pending timeout exceeded; restart failed ({error})",
                now,
                pending_recovery_deleted="true",
                last_error=error,
            )
        self._release(row, now)


def _waits(row: Row, now: datetime) -> bool:
    due = row.metadata.get("next_retry_time")
    return due is not None and now < datetime.fromisoformat(due)

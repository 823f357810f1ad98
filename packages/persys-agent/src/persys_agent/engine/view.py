"""What is told of a workload: the runtime's word, the agent's last failure and the task in flight
side by side.

Decided here: which of them is the state. A failed apply shows as failed until something succeeds,
whatever the runtime knows of it (agent defect 1); a silent runtime makes the state unknown, never
absent. No text of a runtime's silence becomes the message, since schedulers read *no such file* in
it as *there is no such workload*. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from attrs import frozen

from persys_agent.engine.inventory import Seen, Unanswered, server_of
from persys_agent.engine.repair import is_same
from persys_agent.runtimes.port import Instance
from persys_agent.state.records import Condition, Task, TaskKind, TaskState, Workload
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.states import DesiredState, WorkloadType

__all__ = ["counts_as_promised", "orphan_report", "report", "state_of", "task_report"]

_LONGEST_VALUE = 4096
_ENDED_WELL = {"container.exit_code": "0", "container.state": "exited"}
_IN_FLIGHT = {
    TaskState.PENDING: "task pending execution",
    TaskState.RUNNING: "task running",
}


@frozen
class _Told:
    state: AgentState
    message: str


def report(row: Workload, seen: Seen, task: Task | None, since: datetime | None) -> AgentReport:
    """The report of a workload. ``task`` is the open one, ``since`` when its state began."""
    told = _told(row, seen) if task is None else _Told(AgentState.PENDING, _IN_FLIGHT[task.state])
    is_apply = task is not None and task.kind is TaskKind.APPLY
    return AgentReport(
        workload_id=row.id,
        state=told.state,
        revision_id=task.revision_id if task is not None and is_apply else row.revision_id,
        type=row.type,
        desired_state=_desired(row),
        message=told.message,
        failure_code=row.condition.code if row.condition else "",
        task_status=_task_status(task),
        reported_at=since,
        created_at=row.created_at,
        metadata={
            **({} if task else _seen_keys(seen)),
            **(_ENDED_WELL if _is_gone_job(row, seen, task) else {}),
            **_condition_keys(row.condition),
            **_task_keys(task),
        },
    )


def state_of(row: Workload, seen: Seen) -> AgentState:
    """The state that is told of a workload without a task in flight."""
    return _told(row, seen).state


def task_report(task: Task, kind: WorkloadType | None) -> AgentReport:
    """What is told of a workload of which there is only an open task."""
    return AgentReport(
        workload_id=task.workload_id,
        state=AgentState.PENDING,
        revision_id=task.revision_id,
        type=kind,
        message=_IN_FLIGHT[task.state],
        task_status=_task_status(task),
        reported_at=task.created_at,
        created_at=task.created_at,
        metadata=_task_keys(task),
    )


def orphan_report(kind: WorkloadType, instance: Instance, now: datetime) -> AgentReport:
    """What is told of an instance of ours that nobody gave us: the scheduler decides about it."""
    return AgentReport(
        workload_id=instance.workload_id,
        state=instance.state,
        revision_id=instance.revision_id,
        type=kind,
        message=instance.message,
        reported_at=instance.started_at or now,
        created_at=instance.started_at,
        metadata={**_seen_keys(instance), "orphan": "true"},
    )


def counts_as_promised(row: Workload) -> bool:
    """Whether a workload's request is taken: it runs, or is about to."""
    if row.sight is None:
        return False
    if row.desired_state is not DesiredState.RUNNING:
        return row.sight.state is AgentState.PENDING  # it is being started again
    return row.sight.state not in (AgentState.FAILED, AgentState.STOPPED)


def _told(row: Workload, seen: Seen) -> _Told:
    condition = row.condition
    if row.desired_state is DesiredState.DELETED:
        return _being_deleted(condition, seen)
    if condition is not None and not _is_disproved(row, seen):
        return _Told(AgentState.FAILED, condition.text)
    if isinstance(seen, Unanswered):
        return _Told(
            AgentState.UNKNOWN,
            f"{server_of(row.type)} does not answer; what it runs goes on unseen",
        )
    return _without_instance(row) if seen is None else _with_instance(row, seen)


def _is_disproved(row: Workload, seen: Seen) -> bool:
    """Whether what is seen is what was wanted, so that the failure only stands beside it."""
    if row.condition is None or not isinstance(seen, Instance) or not is_same(row, seen):
        return False
    if row.desired_state is DesiredState.STOPPED:
        return True
    return row.condition.operation != "fence" and seen.state is AgentState.RUNNING


def _is_gone_job(row: Workload, seen: Seen, task: Task | None) -> bool:
    """Whether it is a job that ended well and that its runtime has cleared away since."""
    is_told = row.has_ended and seen is None and task is None
    return is_told and row.sight is not None and row.sight.state is AgentState.STOPPED


def _being_deleted(condition: Condition | None, seen: Seen) -> _Told:
    text = f"deletion failed and is tried again: {condition.text}" if condition else "being deleted"
    if isinstance(seen, Instance):
        return _Told(seen.state, text)
    return _Told(AgentState.UNKNOWN if isinstance(seen, Unanswered) else AgentState.STOPPED, text)


def _without_instance(row: Workload) -> _Told:
    if row.desired_state is DesiredState.STOPPED:
        return _Told(AgentState.STOPPED, "not made in the runtime")
    if row.has_ended and row.sight is not None:
        return _Told(row.sight.state, "exited")
    if row.is_settled:
        return _Told(AgentState.PENDING, "gone from the runtime; the agent makes it anew")
    return _Told(AgentState.PENDING, "creating workload")


def _with_instance(row: Workload, seen: Instance) -> _Told:
    if row.desired_state is DesiredState.STOPPED and seen.state is AgentState.FAILED:
        return _Told(AgentState.STOPPED, f"stopped (previous runtime error: {seen.message})")
    return _Told(seen.state, seen.message)


def _desired(row: Workload) -> DesiredState:
    """The wire has two words; what is being deleted is not to run."""
    is_running = row.desired_state is DesiredState.RUNNING
    return DesiredState.RUNNING if is_running else DesiredState.STOPPED


def _task_status(task: Task | None) -> TaskStatus:
    return TaskStatus(task.state) if task is not None else TaskStatus.NONE


def _task_keys(task: Task | None) -> Mapping[str, str]:
    return {"task_id": task.id, "task_status": task.state} if task is not None else {}


def _condition_keys(condition: Condition | None) -> Mapping[str, str]:
    if condition is None:
        return {}
    keys = {
        "failure_reason": condition.code,
        "last_failure_at": condition.at.isoformat(),
        "retryable": str(condition.retryable).lower(),
    }
    if condition.operation == "delete":
        return {**keys, "last_delete_error": condition.text}
    return {**keys, "last_error": condition.text, "failure_message": condition.text}


def _seen_keys(seen: Seen) -> Mapping[str, str]:
    if isinstance(seen, Unanswered):
        return {"runtime_error": _bounded(seen.cause)}
    if seen is None:
        return {}
    keys = {name: _bounded(value) for name, value in seen.metadata.items()}
    if seen.exit_code is not None:
        keys.setdefault("exit_code", str(seen.exit_code))
    if seen.restarts:
        keys.setdefault("restarts", str(seen.restarts))
    if seen.ports:
        bound = (f"{each.host_port}:{each.container_port}/{each.protocol}" for each in seen.ports)
        keys.setdefault("ports", ",".join(bound))
    return keys


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else "…" + text[-_LONGEST_VALUE:]

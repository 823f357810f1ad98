"""How a simulated agent words its reports, beyond what the stored row says.

Decided here: what GetWorkloadStatus adds about the newest task, and what of a report a heartbeat
carries over the wire.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import evolve, frozen

from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.sim.agent_settings import AgentSettings

__all__ = ["NewestTask", "heartbeat_report", "told_at", "with_newest_task"]

_IN_FLIGHT = {
    TaskStatus.PENDING: "task pending execution",
    TaskStatus.RUNNING: "task running",
}


@frozen
class NewestTask:
    """The task of a workload that was created last."""

    id: str
    workload_id: WorkloadId
    status: TaskStatus
    error: str


def with_newest_task(
    report: AgentReport | None, task: NewestTask | None, now: datetime
) -> AgentReport | None:
    """A status answer: the stored row, overlaid by a task in flight.

    ``None`` (``status not found``) where there is neither a row nor a task that speaks for it; a
    failed task speaks for an id that has no row.
    """
    if task is None:
        return report
    if task.status in _IN_FLIGHT:
        return _overlaid(report or _blank(task, now), task)
    if report is None and task.status is TaskStatus.FAILED:
        return evolve(_blank(task, now), state=AgentState.FAILED, message=task.error)
    return report


def heartbeat_report(report: AgentReport, settings: AgentSettings) -> AgentReport:
    """What of a report survives in a heartbeat: no type, no metadata, a revision from us only."""
    default_code = "RUNTIME_ERROR" if report.state is AgentState.FAILED else ""
    return evolve(
        report,
        revision_id=report.revision_id if settings.sends_revision else "",
        type=None,
        desired_state=None,
        created_at=None,
        failure_code=report.failure_code or default_code,
        metadata={},
    )


def told_at(report: AgentReport, offset: timedelta) -> AgentReport:
    """The report as a machine tells it whose wall clock is ``offset`` ahead."""
    if not offset or report.reported_at is None:
        return report
    return evolve(report, reported_at=report.reported_at + offset)


def _blank(task: NewestTask, now: datetime) -> AgentReport:
    return AgentReport(task.workload_id, AgentState.PENDING, reported_at=now)


def _overlaid(report: AgentReport, task: NewestTask) -> AgentReport:
    return evolve(
        report,
        state=AgentState.PENDING,
        message=_IN_FLIGHT[task.status],
        task_status=task.status,
        metadata={**report.metadata, "task_id": task.id, "task_status": str(task.status)},
    )

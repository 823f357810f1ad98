"""How records and answers read in a line of history: short, and without what may be secret."""

from __future__ import annotations

from persys_core.model.node import Node
from persys_core.model.observation import AgentReport
from persys_core.model.resources import Resources
from persys_core.model.workload import (
    Allocation,
    Assignment,
    Intent,
    StatusRecord,
    Tombstone,
    Workload,
)
from persys_core.ports.agents import Accepted, NotFound, Refused, Unreachable
from persys_core.ports.cluster_store import Record
from persys_core.sim.mirror import Touched

__all__ = ["described", "described_outcome", "subjects_of"]

_WIDTH = 120


def subjects_of(change: Touched) -> tuple[str, ...]:
    """The ids that a change is about: the workload first, then the node."""
    match change.after or change.before:
        case Assignment() as assignment:
            return assignment.workload_id, assignment.node_id
        case Tombstone() as grave:
            return grave.workload_id, grave.node_id
        case StatusRecord(intent=Intent() as intent) as status:
            return status.id, intent.node_id
        case _:
            return (change.key.id,) if change.key.id else (str(change.key.kind),)


def described(change: Touched, revision: int) -> str:
    """One write of a commit."""
    what = "removed" if change.after is None else _record(change.after)
    return f"r{revision} {change.key.kind} {what}"[:_WIDTH]


def described_outcome(outcome: object) -> str:
    """An agent's answer."""
    match outcome:
        case Accepted(skipped=skipped):
            return "accepted, skipped" if skipped else "accepted"
        case Refused(message=message, code=code):
            return f"refused {code}: {message}"[:_WIDTH]
        case Unreachable(message=message):
            return f"unreachable: {message}"[:_WIDTH]
        case NotFound():
            return "not found"
        case AgentReport() as report:
            task = f" task {report.task_status}" if report.task_status else ""
            text = f"{report.state} {report.revision_id[:8]}{task} {report.message}"
            return text[:_WIDTH]
        case _:
            return type(outcome).__name__


def _record(record: Record) -> str:
    match record:
        case StatusRecord():
            return _status(record)
        case Workload():
            return f"{record.desired_state} {record.revision_id[:8]} uid {record.uid[:6]}"
        case Assignment():
            held = "released" if record.released else _amounts(record.charged)
            return f"on {record.node_id} {held}"
        case Allocation():
            return f"{_amounts(record.charged)} shares {record.workload_count}"
        case Tombstone():
            told = f" told {_intent(record.intent)}" if record.intent else ""
            return f"{record.reason}{told}"
        case Node():
            intent = "cordoned" if record.intent.cordoned else "open"
            return f"{_amounts(record.capacity)} {intent} u{record.listed_under}"
        case _:
            return str(record)


def _status(status: StatusRecord) -> str:
    parts = [str(status.status), status.last_action]
    if status.intent:
        parts.append(f"intent {_intent(status.intent)}")
    if status.retry.attempts or status.retry.next_at:
        due = f"{status.retry.next_at:%H:%M:%S}" if status.retry.next_at else "-"
        parts.append(f"attempts {status.retry.attempts} due {due}")
    if status.reason:
        parts.append(f"because {status.reason.code}")
    return " ".join(parts)


def _intent(intent: Intent) -> str:
    late = "?" if intent.unanswered else ""
    return f"{intent.action}{late}@{intent.node_id} e{intent.epoch}"


def _amounts(resources: Resources) -> str:
    return ",".join(f"{name}={amount}" for name, amount in resources)

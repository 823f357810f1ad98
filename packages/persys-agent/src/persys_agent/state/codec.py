"""Records as rows and back. Instants are ISO text in UTC, structures are JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from attrs import asdict

from persys_agent.runtimes.port import AttachedVolume
from persys_agent.state.records import Condition, Sight, Task, TaskKind, TaskState, Workload
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ManagedVolume
from persys_core.model.states import DesiredState, WorkloadType

__all__ = ["Row", "task_from", "task_row", "workload_from", "workload_row"]

Row: TypeAlias = Mapping[str, str | int | None]


def workload_row(workload: Workload) -> Row:
    """The columns of a workload."""
    condition, sight = workload.condition, workload.sight
    return {
        "id": workload.id,
        "type": workload.type,
        "revision_id": workload.revision_id,
        "spec_hash": workload.spec_hash,
        "desired_state": workload.desired_state,
        "request": workload.request,
        "requested": json.dumps(dict(workload.requested)),
        "created_at": workload.created_at.isoformat(),
        "updated_at": workload.updated_at.isoformat(),
        "is_settled": int(workload.is_settled),
        "has_ended": int(workload.has_ended),
        "delete_volumes": int(workload.delete_volumes),
        "attached": json.dumps([asdict(each) for each in workload.attached]),
        "condition": _condition_json(condition) if condition else None,
        "state": sight.state if sight else None,
        "state_since": sight.since.isoformat() if sight else None,
    }


def workload_from(row: Mapping[str, object]) -> Workload:
    """The workload of a row. Raises ``ValueError`` or ``KeyError`` where it makes no sense."""
    text = _texts(row)
    return Workload(
        id=text["id"],
        type=WorkloadType(text["type"]),
        revision_id=text["revision_id"],
        spec_hash=text["spec_hash"],
        desired_state=DesiredState(text["desired_state"]),
        request=text["request"],
        requested=Resources(json.loads(text["requested"])),
        created_at=datetime.fromisoformat(text["created_at"]),
        updated_at=datetime.fromisoformat(text["updated_at"]),
        is_settled=bool(row["is_settled"]),
        has_ended=bool(row["has_ended"]),
        delete_volumes=bool(row["delete_volumes"]),
        attached=tuple(
            AttachedVolume(ManagedVolume(**each["volume"]), each["path"], each["device"])
            for each in json.loads(text["attached"])
        ),
        condition=_condition(text["condition"]) if "condition" in text else None,
        sight=(
            Sight(AgentState(text["state"]), datetime.fromisoformat(text["state_since"]))
            if "state" in text
            else None
        ),
    )


def task_row(task: Task) -> Row:
    """The columns of a task."""
    return {
        "serial": task.serial,
        "id": task.id,
        "kind": task.kind,
        "workload_id": task.workload_id,
        "created_at": task.created_at.isoformat(),
        "request": task.request,
        "revision_id": task.revision_id,
        "delete_volumes": int(task.delete_volumes),
        "state": task.state,
        "error": task.error,
        "started_at": task.started_at.isoformat() if task.started_at else None,
        "ended_at": task.ended_at.isoformat() if task.ended_at else None,
    }


def task_from(row: Mapping[str, object]) -> Task:
    """The task of a row. Raises ``ValueError`` or ``KeyError`` where it makes no sense."""
    text = _texts(row)
    return Task(
        serial=int(str(row["serial"])),
        id=text["id"],
        kind=TaskKind(text["kind"]),
        workload_id=text["workload_id"],
        created_at=datetime.fromisoformat(text["created_at"]),
        request=text["request"],
        revision_id=text["revision_id"],
        delete_volumes=bool(row["delete_volumes"]),
        state=TaskState(text["state"]),
        error=text["error"],
        started_at=datetime.fromisoformat(text["started_at"]) if "started_at" in text else None,
        ended_at=datetime.fromisoformat(text["ended_at"]) if "ended_at" in text else None,
    )


def _texts(row: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in row.items() if isinstance(value, str)}


def _condition_json(condition: Condition) -> str:
    return json.dumps({**asdict(condition), "at": condition.at.isoformat()})


def _condition(text: str) -> Condition:
    fields = json.loads(text)
    return Condition(**{**fields, "at": datetime.fromisoformat(fields["at"])})

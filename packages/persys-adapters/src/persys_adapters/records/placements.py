"""The stored shape of an assignment, the one record of placement that the reference has, too."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from persys_adapters.records.json_values import EPOCH, JsonObject, from_json, to_json
from persys_core.model.resources import Resources
from persys_core.model.workload import Assignment

__all__ = ["StoredAssignment", "assignment_from", "assignment_json"]


@frozen
class StoredAssignment:
    """``/assignments/{id}`` for the reference; ours stands whole under ``persys`` beside it."""

    workload_id: str = ""
    node_id: str = ""
    reason: str = ""
    created_at: datetime | None = None


def assignment_json(assignment: Assignment) -> JsonObject:
    """``assignment`` as the reference would show it, and as it is under ``persys``."""
    shown = StoredAssignment(
        assignment.workload_id, assignment.node_id, assignment.reason, assignment.created_at
    )
    return {**to_json(shown), "persys": to_json(assignment)}


def assignment_from(value: JsonObject) -> Assignment:
    """The assignment in ``value``; one of the reference is charged with nothing yet."""
    if "persys" in value:
        return from_json(value["persys"], Assignment)
    stored = from_json(value, StoredAssignment)
    return Assignment(
        workload_id=stored.workload_id,
        uid="",
        node_id=stored.node_id,
        charged=Resources(),
        reason=stored.reason,
        created_at=stored.created_at or EPOCH,
    )

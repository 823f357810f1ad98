"""What the span of a request may say of it: ids that are well formed, and words of closed sets.

Decided here: that list, under the names of the reference. Never a text that a caller chose, since
it may hold a secret (decisions §5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.message import Message

from persys_core.model.states import WorkloadType
from persys_server.observability.labels import DESIRED_STATES, NODE_STATUSES, WORKLOAD_STATUSES

__all__ = ["WELL_FORMED_ID", "request_facts"]

WELL_FORMED_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_TYPES = frozenset(map(str, WorkloadType))
_STATUSES = NODE_STATUSES | WORKLOAD_STATUSES


def request_facts(request: object) -> Iterator[tuple[str, str]]:
    """Names and values of attributes."""
    if not isinstance(request, Message):
        return
    fields = request.DESCRIPTOR.fields_by_name
    is_list = "status" in fields and "workload_id" not in fields
    for name in ("workload_id", "node_id"):
        given = _text(request, name)
        if WELL_FORMED_ID.match(given):
            filtered = "filter_" if is_list else ""
            yield f"scheduler.{filtered}{name}", given
    yield from _word(request, "desired_state", "scheduler.workload_desired_state", DESIRED_STATES)
    yield from _word(request, "status", "scheduler.filter_status", _STATUSES)
    if "spec" in fields and request.HasField("spec"):
        spec: object = getattr(request, "spec")  # noqa: B009
        yield from _word(spec, "type", "scheduler.workload_type", _TYPES)


def _word(
    message: object, name: str, attribute: str, known: frozenset[str]
) -> Iterator[tuple[str, str]]:
    given = _text(message, name).strip().lower()
    if given in known:
        yield attribute, given


def _text(message: object, name: str) -> str:
    given = getattr(message, name, "")
    return given if isinstance(given, str) else ""

"""One event as JSON in a stream entry, in the shape that readers of the reference expect.

Decided here: the names (``id`` is a unique id of the event, not its place in the stream), that no
secret and no text without end goes in, and that what cannot be read is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from attrs import evolve

from persys_adapters.records.json_values import EPOCH, JsonObject, instant, parsed
from persys_core.model.event import Event, EventType, capped
from persys_core.model.secrets import masked, scrubbed

__all__ = ["bounded", "event_from", "event_json", "rfc3339", "token_in"]

_MAX_DETAILS = 32
_MAX_NAME_BYTES = 128
_TYPES = {str(kind): kind for kind in EventType}


def bounded(event: Event) -> Event:
    """``event`` with texts of bounded length that every encoding can take, and no secrets."""
    details = {
        _clean(name, _MAX_NAME_BYTES): _clean(text)
        for name, text in list(masked(event.details).items())[:_MAX_DETAILS]
    }
    return evolve(
        event,
        workload_id=_clean(event.workload_id),
        node_id=_clean(event.node_id),
        reason=_clean(event.reason),
        details=details,
    )


def event_json(event: Event, token: str) -> bytes:
    """``event`` under the unique id ``token``."""
    value: JsonObject = {"id": token, "type": str(event.type)}
    if event.workload_id:
        value["workloadId"] = event.workload_id
    if event.node_id:
        value["nodeId"] = event.node_id
    if event.reason:
        value["reason"] = event.reason
    value["timestamp"] = rfc3339(event.timestamp)
    if event.details:
        value["details"] = dict(sorted(event.details.items()))
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def event_from(raw: bytes, entry_id: str) -> Event | None:
    """The event of a stream entry; ``None`` where it is none, or of a type that is not known."""
    try:
        value = parsed(raw)
        kind = _TYPES.get(_text(value.get("type", "")))
        at = instant(_text(value.get("timestamp", "")))
    except ValueError:
        return None
    if kind is None:
        return None
    details = value.get("details", {})
    return Event(
        kind,
        at or EPOCH,
        workload_id=_text(value.get("workloadId", "")),
        node_id=_text(value.get("nodeId", "")),
        reason=_text(value.get("reason", "")),
        details=_details(details) if isinstance(details, dict) else {},
        id=entry_id,
    )


def token_in(raw: bytes) -> str:
    """The unique id of the event in ``raw``; empty where there is none."""
    try:
        return _text(parsed(raw).get("id", ""))
    except ValueError:
        return ""


def rfc3339(at: datetime) -> str:
    """``at`` as the stored records write instants."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _details(values: Mapping[object, object]) -> dict[str, str]:
    """The reference has values of any kind."""
    return {str(name): _text(value) for name, value in values.items()}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _clean(text: str, limit: int = 1024) -> str:
    return capped(scrubbed(text.encode(errors="replace").decode(), ()), limit)

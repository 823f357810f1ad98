"""The stored shape of a status record, and what one of the reference means in our words."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from attrs import field, frozen

from persys_adapters.records.json_values import (
    EPOCH,
    JsonObject,
    from_json,
    named,
    only_read,
    to_json,
)
from persys_core.model.constraints import constraint_errors
from persys_core.model.states import ObservedState, WorkloadStatus
from persys_core.model.workload import Observed, Reason, RetryState, StatusRecord

__all__ = ["StoredStatus", "status_from", "status_json", "with_short_logs"]

_LOG_LINES = 50
_LOG_BYTES = 8 * 1024
_WISHES = ("disk_ids", "allow_move")
_NO_WISH = "persys.scheduling.pinned_reason"
_S = TypeVar("_S", bound=StrEnum)


@frozen
class StoredReason:
    """Why the status is what it is; ``retryable`` is false where it is missing."""

    code: str = ""
    message: str = ""
    last_transition: datetime | None = None
    next_retry_at: datetime | None = None
    retryable: bool = False


@frozen
class StoredStatusInfo:
    """The observed state, as the reference shows it."""

    actual_state: str = ""
    last_updated: datetime | None = None
    failure_reason: str = ""
    reason: StoredReason | None = None


@frozen
class StoredRetry:
    """The failure budget, as far as the reference has it."""

    attempts: int = 0
    next_retry_at: datetime | None = None
    max_attempts: int = field(default=0, metadata=only_read())


@frozen
class StoredMetadata:
    """The one entry of the reference's metadata that has a field of ours."""

    last_action: str = field(default="", metadata=named("last_action"))


@frozen
class StoredStatus:
    """``/workloads-status/{id}`` for the reference; ours stands whole under ``persys``."""

    id: str = ""
    node_id: str = ""
    status: str = ""
    metadata: StoredMetadata = StoredMetadata()
    retry: StoredRetry = StoredRetry()
    status_info: StoredStatusInfo = StoredStatusInfo()
    assigned_node: str = field(default="", metadata=only_read())


def status_json(record: StatusRecord) -> JsonObject:
    """``record`` as the reference would show it, and as it is under ``persys``."""
    shown = StoredStatus(
        id=record.id,
        node_id=record.observed.node_id,
        status=record.status,
        metadata=StoredMetadata(record.last_action),
        retry=StoredRetry(record.retry.attempts, record.retry.next_at),
        status_info=StoredStatusInfo(
            actual_state=record.observed.state,
            last_updated=record.updated_at,
            failure_reason=record.failure.message if record.failure else "",
            reason=_shown_reason(record.reason),
        ),
    )
    return {**to_json(shown), "persys": to_json(record)}


def status_from(value: JsonObject) -> StatusRecord:
    """The status record in ``value``; in one of the reference an unknown word is Unknown."""
    if "persys" in value:
        return from_json(value["persys"], StatusRecord)
    metadata = value.get("metadata")
    return _adopted(from_json(value, StoredStatus), metadata if metadata else {})


def with_short_logs(value: JsonObject) -> JsonObject:
    """``value`` with the last lines of its logs: the reference adds to them without end, and a
    record with all of them could not be written any more (reference defect C5)."""
    logs = value.get("logs")
    if not isinstance(logs, str) or (len(logs) <= _LOG_BYTES and logs.count("\n") <= _LOG_LINES):
        return value
    lines = logs[-_LOG_BYTES:].splitlines(keepends=True)
    whole = lines[1:] if len(logs) > _LOG_BYTES else lines
    return {**value, "logs": "".join(whole[-_LOG_LINES:])}


def _adopted(stored: StoredStatus, metadata: JsonObject) -> StatusRecord:
    info = stored.status_info
    return StatusRecord(
        id=stored.id,
        uid="",
        status=_word(stored.status, WorkloadStatus.UNKNOWN),
        updated_at=info.last_updated or EPOCH,
        observed=Observed(
            state=_word(info.actual_state, ObservedState.UNKNOWN),
            node_id=stored.node_id or stored.assigned_node,
            at=info.last_updated,
        ),
        reason=_given_up(stored, metadata) or _reason(info.reason),
        retry=_retry(stored, given_up=_given_up(stored, metadata) is not None),
        last_action=stored.metadata.last_action,
        user_metadata=_wishes(metadata),
    )


_HOPELESS = {
    "invalid_image",
    "invalid_specification",
    "invalid_configuration",
    "port_bind_conflict",
    "disk_pressure",
    "domain_paused_io",
    "resource_quota",
    "resource_quota_exceeded",
}
"""The failures after which the reference tries no more."""


def _given_up(stored: StoredStatus, metadata: JsonObject) -> Reason | None:
    """Why the reference tries it no more; it stays so until it is applied or retried.

    Its own texts are not repeated, since they may hold secrets of the spec.
    """
    if _word(stored.status, WorkloadStatus.UNKNOWN) is not WorkloadStatus.FAILED:
        return None
    code = str(metadata.get("failure_reason", "")).strip().lower()
    spent = 0 < stored.retry.max_attempts <= stored.retry.attempts
    if not spent and code not in _HOPELESS and metadata.get("retry_terminal") not in (True, "true"):
        return None
    text = f"given up by an earlier scheduler after {stored.retry.attempts} attempts"
    since = stored.status_info.last_updated or EPOCH
    return Reason(code or "retries_exhausted", text, since=since, retryable=False)


def _retry(stored: StoredStatus, *, given_up: bool) -> RetryState:
    """The reference never gives a budget back (defect C7): what runs has a new one."""
    retry, info = stored.retry, stored.status_info
    if _word(stored.status, WorkloadStatus.UNKNOWN) in _RUNS:
        return RetryState()
    return RetryState(
        retry.attempts,
        None if given_up else retry.next_retry_at,
        first_failure_at=info.last_updated,
        exhausted=given_up,
    )


_RUNS = (WorkloadStatus.RUNNING, WorkloadStatus.STOPPED, WorkloadStatus.COMPLETED)


def _wishes(metadata: JsonObject) -> dict[str, str]:
    """The user's own words among what the reference notes; malformed ones mean nothing to it."""
    return {
        name: text
        for name, text in metadata.items()
        if isinstance(text, str)
        and (name in _WISHES or (name.startswith("persys.") and name != _NO_WISH))
        and not any(constraint_errors({name: text}))
    }


def _shown_reason(reason: Reason | None) -> StoredReason | None:
    if reason is None:
        return None
    return StoredReason(
        reason.code, reason.message, reason.since, reason.next_try_at, reason.retryable
    )


def _reason(stored: StoredReason | None) -> Reason | None:
    """The reference writes an empty reason where there is none."""
    if stored is None or stored == StoredReason():
        return None
    return Reason(
        code=stored.code,
        message=stored.message,
        since=stored.last_transition or EPOCH,
        next_try_at=stored.next_retry_at,
        retryable=stored.retryable,
    )


def _word(text: str, otherwise: _S) -> _S:
    """The member of the vocabulary that ``text`` names, in whatever case."""
    wanted = text.strip().lower()
    return next((word for word in type(otherwise) if word.lower() == wanted), otherwise)

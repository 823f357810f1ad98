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
from persys_core.model.states import ObservedState, WorkloadStatus
from persys_core.model.workload import Observed, Reason, RetryState, StatusRecord

__all__ = ["StoredStatus", "status_from", "status_json"]

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
    return _adopted(from_json(value, StoredStatus))


def _adopted(stored: StoredStatus) -> StatusRecord:
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
        reason=_reason(info.reason),
        retry=RetryState(attempts=stored.retry.attempts, next_at=stored.retry.next_retry_at),
        last_action=stored.metadata.last_action,
    )


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

"""Instants and durations on the wire."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

__all__ = ["instant", "timestamp"]


def timestamp(at: datetime | None) -> Timestamp | None:
    """``at`` as a message; ``None`` leaves the field unset."""
    if at is None:
        return None
    message = Timestamp()
    message.FromDatetime(at.astimezone(UTC))
    return message


def instant(message: Timestamp) -> datetime | None:
    """The instant of a message, aware UTC; ``None`` where it is unset or no possible instant."""
    if not message.seconds and not message.nanos:
        return None
    try:
        return message.ToDatetime(UTC)
    except (ValueError, OverflowError):
        return None

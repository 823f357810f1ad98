"""Events: filters in, views out."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from persys_core.control.answers import Freshness
from persys_core.model.event import Event, EventFilter, EventType
from persys_core.model.ids import StoreRevision
from persys_core.model.secrets import masked
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.fields import Fields
from persys_server.grpc.mapping.times import timestamp

__all__ = ["EventQuery", "event_list", "event_view", "list_events", "watch_events"]

_TYPES = {kind.lower(): str(kind) for kind in EventType}


@frozen
class EventQuery:
    """Which events, how many of the newest (0: all that are kept), and how new at least."""

    wanted: EventFilter
    limit: int = 0
    after_id: str = ""
    at_least: StoreRevision = 0


def list_events(message: pb.ListEventsRequest) -> EventQuery:
    """What ListEvents asks for."""
    fields = Fields()
    query = EventQuery(
        wanted=_filter(fields, message),
        limit=fields.amount("limit", message.limit, 1_000_000, "events"),
        at_least=fields.amount("min_revision", message.min_revision, 2**63 - 1, ""),
    )
    fields.finish()
    return query


def watch_events(message: pb.WatchEventsRequest) -> EventQuery:
    """What WatchEvents asks for."""
    fields = Fields()
    query = EventQuery(
        wanted=_filter(fields, message),
        after_id=fields.text("after_id", message.after_id, at_most=128),
    )
    fields.finish()
    return query


def event_view(event: Event) -> pb.SchedulerEventView:
    """One event."""
    return pb.SchedulerEventView(
        id=event.id,
        type=str(event.type),
        workload_id=event.workload_id,
        node_id=event.node_id,
        reason=event.reason,
        timestamp=timestamp(event.timestamp),
        details=masked(event.details),
    )


def event_list(events: Iterable[Event], fresh: Freshness) -> pb.ListEventsResponse:
    """The answer to ListEvents, oldest first."""
    return pb.ListEventsResponse(
        events=map(event_view, events),
        store_revision=fresh.revision,
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
    )


def _filter(fields: Fields, message: pb.ListEventsRequest | pb.WatchEventsRequest) -> EventFilter:
    return EventFilter(
        type=fields.word("type", message.type, _TYPES, ""),
        workload_id=fields.text("workload_id", message.workload_id),
        node_id=fields.text("node_id", message.node_id),
    )

"""What happened: a list of the past, and a stream that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from persys_core.control.answers import Freshness
from persys_core.control.api import QueriesApi
from persys_core.model.event import Event
from persys_core.ports.events import EventLog
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.errors import NotServingError
from persys_server.grpc.mapping.events import event_list, event_view, list_events, watch_events
from persys_server.grpc.service.waiting import caught_up
from persys_server.phase import PhaseSwitch

__all__ = ["EventRpcs"]


class EventRpcs(control_pb2_grpc.AgentControlServicer):
    """ListEvents and WatchEvents."""

    events: EventLog
    queries: QueriesApi
    phase: PhaseSwitch

    async def ListEvents(
        self, request: pb.ListEventsRequest, context: Context
    ) -> pb.ListEventsResponse:
        """Kept events, oldest first."""
        query = list_events(request)
        fresh = Freshness(0)
        if query.at_least:
            reading = self.queries.summary(at_least=query.at_least)
            _, fresh = await caught_up(reading, query.at_least, context)
        return event_list(await self.events.list(query.wanted, query.limit), fresh)

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Context
    ) -> AsyncIterator[pb.SchedulerEventView]:
        """History, then live, until the caller goes away or this replica stops."""
        query = watch_events(request)
        tail = self.events.tail(query.wanted, query.after_id)
        async for event in _until_stopping(tail, self.phase):
            yield event_view(event)


async def _until_stopping(tail: AsyncIterator[Event], phase: PhaseSwitch) -> AsyncIterator[Event]:
    """The events of ``tail``; ``NotServingError`` when the phase is ``STOPPING``."""
    stopping = asyncio.ensure_future(phase.stopping())
    following: asyncio.Future[Event] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(tail))
            await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                raise NotServingError(
                    "this replica is stopping; watch again with after_id set to the last event's id"
                )
            try:
                event = following.result()
            except StopAsyncIteration:
                return
            yield event
    finally:
        await _end(stopping, following)


async def _end(*waits: asyncio.Future[Any] | None) -> None:
    present = [wait for wait in waits if wait is not None]
    for wait in present:
        wait.cancel()
    await asyncio.gather(*present, return_exceptions=True)

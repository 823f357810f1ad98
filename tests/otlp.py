"""Collectors of traces on free loopback ports: two that take spans, and one that never answers.

Tests read the spans that came as plain values.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from aiohttp import web
from attrs import define, field, frozen
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as wire
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

__all__ = ["Collector", "Seen", "grpc_collector", "http_collector", "silent_collector"]


@frozen
class Seen:
    """One span as it came over the wire; ids are hexadecimal, ``raw`` is everything of it."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    attributes: Mapping[str, str]
    resource: Mapping[str, str]
    failed: bool
    raw: str


@define
class Collector:
    """What came in so far. ``headers`` are those of the last request."""

    port: int = 0
    spans: list[Seen] = field(factory=list)
    headers: dict[str, str] = field(factory=dict)
    _came: asyncio.Event = field(factory=asyncio.Event)

    def take(self, request: wire.ExportTraceServiceRequest, headers: Mapping[str, str]) -> None:
        """Note a request."""
        self.headers = dict(headers)
        for batch in request.resource_spans:
            resource = {each.key: each.value.string_value for each in batch.resource.attributes}
            for scope in batch.scope_spans:
                self.spans += [_seen(span, resource) for span in scope.spans]
        self._came.set()

    def named(self, name: str) -> list[Seen]:
        """The spans of that name."""
        return [span for span in self.spans if span.name == name]

    async def has(self, name: str, seconds: float = 20.0) -> Seen:
        """Wait for a span of that name; the first one."""
        async with asyncio.timeout(seconds):
            while not self.named(name):
                self._came.clear()
                await self._came.wait()
        return self.named(name)[0]


def _seen(span: trace_pb2.Span, resource: Mapping[str, str]) -> Seen:
    attributes = {
        each.key: each.value.string_value or str(each.value.int_value) for each in span.attributes
    }
    return Seen(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        attributes=attributes,
        resource=resource,
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        raw=str(span),
    )


@asynccontextmanager
async def http_collector() -> AsyncIterator[Collector]:
    """Takes spans over HTTP at /v1/traces."""
    collector = Collector()

    async def take(request: web.Request) -> web.Response:
        message = wire.ExportTraceServiceRequest.FromString(await request.read())
        collector.take(message, {key.lower(): value for key, value in request.headers.items()})
        return web.Response(body=wire.ExportTraceServiceResponse().SerializeToString())

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        collector.port = runner.addresses[0][1]
        yield collector
    finally:
        await runner.cleanup()


@asynccontextmanager
async def grpc_collector() -> AsyncIterator[Collector]:
    """Takes spans over gRPC."""
    collector = Collector()

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        async def Export(
            self,
            request: wire.ExportTraceServiceRequest,
            context: grpc.aio.ServicerContext[Any, Any],
        ) -> wire.ExportTraceServiceResponse:
            headers = {key: str(value) for key, value in context.invocation_metadata() or ()}
            collector.take(request, headers)
            return wire.ExportTraceServiceResponse()

    server = grpc.aio.server()
    add_service: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add_service(Service(), server)
    collector.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(None)


@asynccontextmanager
async def silent_collector() -> AsyncIterator[int]:
    """Accepts connections and never says a word; its port."""
    connections: list[_Silence] = []

    def accept() -> _Silence:
        connections.append(_Silence())
        return connections[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in connections:
            connection.end()
        await server.wait_closed()


class _Silence(asyncio.Protocol):
    """A connection on which nothing is said."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def end(self) -> None:
        self._transport.close()

"""Spans by OpenTelemetry's SDK, sent to a collector over OTLP. The one file that knows the SDK.

Decided here: how spans are named and what they say, that they are sent in batches by a thread of
their own from a bounded queue, and how long the end may take (field report M03): a collector that
is away or silent costs spans, never a request or the shutdown. Whose parent counts: the caller's,
by its W3C trace context; baggage is not taken over, since it could hold anything.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import version

import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from persys_core.ports.tracer import Span, SpanName, Tracer
from persys_server.observability.exporters import otlp_exporter
from persys_server.observability.present import PresentSpan, present_span
from persys_server.observability.request_facts import request_facts
from persys_server.observability.tracing import Headers, Served
from persys_server.settings import Settings
from persys_server.settings.otlp import Sampler

__all__ = ["OtelTracer", "OtelTraces", "start"]

QUEUE_SPANS = 4096
BATCH_SPANS = 256
SEND_EVERY_SECONDS = 2.0
CLOSING_SECONDS = 2.0

_LIMITS = SpanLimits(
    max_attributes=32,
    max_events=8,
    max_links=8,
    max_span_attributes=32,
    max_event_attributes=8,
    max_link_attributes=8,
    max_attribute_length=256,
    max_span_attribute_length=256,
)
_AGENT_SERVICE = "persys.agent.v1.AgentService"
_CONTEXT_HEADERS = ("traceparent", "tracestate")
_W3C = TraceContextTextMapPropagator()
_KINDS = {SpanName.AGENT_CALL: SpanKind.CLIENT, SpanName.COMMIT: SpanKind.CLIENT}

_log = structlog.stdlib.get_logger("persys_server.tracing")


def start(settings: Settings) -> OtelTraces:
    """Tracing as ``settings`` ask for, which name an endpoint."""
    exporter, where = otlp_exporter(settings)
    _log.info("traces are sent", protocol=str(where.protocol), endpoint=where.address)
    return OtelTraces(exporter, _resource(settings), _sampler(settings))


class OtelTraces:
    """See ``tracing.Traces``. Owns the exporter."""

    def __init__(
        self,
        exporter: SpanExporter,
        resource: Resource,
        sampler: sampling.Sampler = sampling.DEFAULT_ON,
    ) -> None:
        self._exporter = exporter
        # Every number is given, so that the library does not read the environment for it.
        self._processor = BatchSpanProcessor(
            exporter,
            max_queue_size=QUEUE_SPANS,
            schedule_delay_millis=SEND_EVERY_SECONDS * 1000,
            max_export_batch_size=BATCH_SPANS,
            export_timeout_millis=CLOSING_SECONDS * 1000,
        )
        provider = TracerProvider(
            sampler=sampler, resource=resource, shutdown_on_exit=False, span_limits=_LIMITS
        )
        provider.add_span_processor(self._processor)
        self._spans = provider.get_tracer("persys_server")
        self.tracer: Tracer = OtelTracer(self._spans)

    def rpc(self, method: str, headers: Headers) -> Served:
        """As the protocol says; the span's name is the method without its first slash."""
        service, _, name = method.lstrip("/").rpartition("/")
        span = self._spans.start_span(
            method.lstrip("/"),
            context=_context_of(headers),
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
        )
        return _ServedSpan(span, "rpc.grpc.status_code")

    def page(self, route: str, headers: Headers) -> Served:
        """As the protocol says; the span's name is the reference's."""
        span = self._spans.start_span(
            "scheduler." + route.strip("/"),
            context=_context_of(headers),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": "GET", "http.route": route},
        )
        return _ServedSpan(span, "http.response.status_code")

    def flush(self) -> None:
        """Send what is queued now, and wait for that; for tests."""
        self._processor.force_flush()

    async def aclose(self) -> None:
        """Send what is left. What the collector does not take in time is given up."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
            # Where it took too long the loop may be gone by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        # A daemon, since neither the process nor asyncio may wait for it.
        threading.Thread(target=end, name="tracing-end", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await ended.wait()
        except TimeoutError:
            _log.warning("the last spans were not taken in time and are given up")
            self._exporter.shutdown()


class OtelTracer:
    """The core's Tracer port."""

    def __init__(self, spans: trace.Tracer) -> None:
        self._spans = spans

    @contextmanager
    def span(
        self,
        name: SpanName,
        *,
        workload_id: str = "",
        node_id: str = "",
        operation: str = "",
        size: int = 0,
    ) -> Iterator[Span]:
        """As the port says."""
        given: dict[str, str | int] = {
            "scheduler.workload_id": workload_id,
            "scheduler.node_id": node_id,
            "scheduler.size": size,
        }
        attributes = {key: value for key, value in given.items() if value}
        if name is SpanName.AGENT_CALL:
            attributes |= {"rpc.system": "grpc", "rpc.service": _AGENT_SERVICE}
            attributes["rpc.method"] = operation
        shown = f"{_AGENT_SERVICE}/{operation}" if name is SpanName.AGENT_CALL else str(name)
        kind = _KINDS.get(name, SpanKind.INTERNAL)
        span = self._spans.start_span(shown, kind=kind, attributes=attributes)
        try:
            with _as_current(span):
                yield _WorkSpan(span)
        except BaseException as error:
            # By its type alone: its text may hold anything.
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            span.end()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """As the port says."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return tuple(carrier.items())


class _WorkSpan:
    """A span of the core."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def ends_as(self, outcome: str) -> None:
        self._span.set_attribute("scheduler.outcome", outcome)


class _ServedSpan:
    """The span of a request."""

    def __init__(self, span: trace.Span, code_name: str) -> None:
        self._span = span
        self._code_name = code_name

    def current(self) -> AbstractContextManager[None]:
        return _as_current(self._span)

    def about(self, request: object) -> None:
        if self._span.is_recording():
            for name, value in request_facts(request):
                self._span.set_attribute(name, value)

    def end(self, code: int, *, failed: bool) -> None:
        self._span.set_attribute(self._code_name, code)
        if failed:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


@contextmanager
def _as_current(span: trace.Span) -> Iterator[None]:
    ids = span.get_span_context()
    if not ids.is_valid:
        # OTEL_SDK_DISABLED: the library hands out spans that are none.
        yield
        return
    token = otel_context.attach(trace.set_span_in_context(span))
    told = present_span.set(
        PresentSpan(
            trace.format_trace_id(ids.trace_id),
            trace.format_span_id(ids.span_id),
            ids.trace_flags.sampled,
        )
    )
    try:
        yield
    finally:
        present_span.reset(told)
        otel_context.detach(token)


def _context_of(headers: Headers) -> otel_context.Context:
    """The caller's span; an empty context, and so a trace of its own, where it names none."""
    carrier = {
        name: value
        for name, value in headers
        if name in _CONTEXT_HEADERS and isinstance(value, str)
    }
    return _W3C.extract(carrier, otel_context.Context())


def _resource(settings: Settings) -> Resource:
    own: dict[str, AttributeValue] = {
        "service.name": settings.otel_service_name,
        "service.version": version("persys-server"),
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return Resource({**own, **dict(settings.otel_resource_attributes)})


def _sampler(settings: Settings) -> sampling.Sampler:
    ratio = settings.otel_traces_ratio
    match settings.otel_traces_sampler:
        case Sampler.ALWAYS_ON:
            return sampling.ALWAYS_ON
        case Sampler.ALWAYS_OFF:
            return sampling.ALWAYS_OFF
        case Sampler.RATIO:
            return sampling.TraceIdRatioBased(ratio)
        case Sampler.PARENT_ON:
            return sampling.DEFAULT_ON
        case Sampler.PARENT_OFF:
            return sampling.DEFAULT_OFF
        case Sampler.PARENT_RATIO:
            return sampling.ParentBasedTraceIdRatio(ratio)

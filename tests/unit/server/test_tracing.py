"""Spans: their names and parents, what they may say, and that lines and metrics point to them."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest
import structlog
from aiohttp.test_utils import TestClient, TestServer
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, sampling
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from persys_core.model.event import Event, EventType
from persys_core.ports.observer import Metric
from persys_core.ports.tracer import NullTracer, SpanName
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.http.app import http_app
from persys_server.observability.logging import configure_logging
from persys_server.observability.metrics import Metrics, PrometheusObserver
from persys_server.observability.otel import OtelTraces
from persys_server.observability.request_facts import request_facts
from persys_server.observability.tracing import NoTraces, open_traces
from persys_server.settings import LogFormat, load_settings
from tests.unit.server.fakes import NOW, FakeScheduler, loopback
from tests.unit.server.test_http import state

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = ("traceparent", f"00-{TRACE}-{PARENT}-01")


class Recorded:
    """Tracing into memory. ``spans`` sends what is queued."""

    def __init__(self, sampler: sampling.Sampler = sampling.DEFAULT_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self.traces = OtelTraces(self._exporter, Resource({}), sampler)

    def spans(self) -> dict[str, ReadableSpan]:
        self.traces.flush()
        return {span.name: span for span in self._exporter.get_finished_spans()}


@asynccontextmanager
async def recording(sampler: sampling.Sampler = sampling.DEFAULT_ON) -> AsyncIterator[Recorded]:
    recorded = Recorded(sampler)
    try:
        yield recorded
    finally:
        await recorded.traces.aclose()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Everything that is logged, as JSON."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("info", LogFormat.JSON, stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.contextvars.clear_contextvars()


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


@pytest.mark.asyncio
async def test_a_request_is_a_span_under_its_caller() -> None:
    """W3C context that comes in is honoured; the span has method, code and ids, and no more."""
    async with recording() as recorded, loopback(traces=recorded.traces) as here:
        request = pb.ApplyWorkloadRequest(
            workload_id="w1", desired_state="Running", spec=pb.WorkloadSpec(type="container")
        )
        with pytest.raises(grpc.aio.AioRpcError):
            await here.stub.ApplyWorkload(request, metadata=(TRACEPARENT,))
        span = recorded.spans()["persys.control.v1.AgentControl/ApplyWorkload"]
        assert span.parent is not None
        assert (span.parent.trace_id, span.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
        assert attributes(span) == {
            "rpc.system": "grpc",
            "rpc.service": "persys.control.v1.AgentControl",
            "rpc.method": "ApplyWorkload",
            "rpc.grpc.status_code": 3,
            "scheduler.workload_id": "w1",
            "scheduler.workload_desired_state": "running",
            "scheduler.workload_type": "container",
        }
        assert span.status.is_unset


@pytest.mark.asyncio
async def test_what_a_caller_sends_along_cannot_hurt() -> None:
    """A broken context, baggage and bytes are ignored: the span begins a trace of its own."""
    async with recording() as recorded, loopback(traces=recorded.traces) as here:
        sent = (("traceparent", "00-zz-1-01"), ("baggage", "a=s3cr3t"), ("x-bin", b"\x00"))
        await here.stub.GetClusterSummary(pb.GetClusterSummaryRequest(), metadata=sent)
        span = recorded.spans()["persys.control.v1.AgentControl/GetClusterSummary"]
        assert span.parent is None
        assert "s3cr3t" not in span.to_json()


@pytest.mark.asyncio
async def test_a_bug_marks_its_span_and_lines_name_it(lines: io.StringIO) -> None:
    """A log line within a span carries trace_id and span_id; the span of a bug is an error."""
    fake = FakeScheduler()
    fake.error = RuntimeError("token=s3cr3t")
    async with recording() as recorded, loopback(fake, traces=recorded.traces) as here:
        with pytest.raises(grpc.aio.AioRpcError):
            await here.stub.ListNodes(pb.ListNodesRequest(), metadata=(TRACEPARENT,))
        span = recorded.spans()["persys.control.v1.AgentControl/ListNodes"]
    assert not span.status.is_ok
    assert "s3cr3t" not in span.to_json()
    assert span.context is not None
    bug = next(line for line in written(lines) if line["level"] == "error")
    assert (bug["trace_id"], bug["span_id"]) == (TRACE, f"{span.context.span_id:016x}")


@pytest.mark.asyncio
async def test_a_stream_is_one_span() -> None:
    """It ends with the stream, whoever ends that, and leaves no context behind."""
    async with recording() as recorded, loopback(traces=recorded.traces) as here:
        here.events.append(Event(EventType.NODE_JOINED, NOW, node_id="n1"))
        stream = here.stub.WatchEvents(pb.WatchEventsRequest(), metadata=(TRACEPARENT,))
        await anext(aiter(stream))
        stream.cancel()
        await here.metrics.counted.wait()
        span = recorded.spans()["persys.control.v1.AgentControl/WatchEvents"]
    assert attributes(span)["rpc.grpc.status_code"] == 1
    assert span.status.is_unset


def written(lines: io.StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_a_line_outside_of_spans_has_no_ids(lines: io.StringIO) -> None:
    """No ids are told where there are none."""
    structlog.stdlib.get_logger("persys_server.x").info("hello")
    assert "trace_id" not in written(lines)[0]


@pytest.mark.asyncio
async def test_pages_are_spans() -> None:
    """/metrics and /health have the reference's spans; a failing page is an error."""

    async def broken(accept: str) -> tuple[bytes, str]:
        raise RuntimeError("s3cr3t")

    async with recording() as recorded:
        app = http_app(state, broken, recorded.traces)
        async with TestClient(TestServer(app)) as http:
            assert (await http.get("/health", headers=dict([TRACEPARENT]))).status == 200
            assert (await http.get("/metrics")).status == 500
        spans = recorded.spans()
    health, metrics = spans["scheduler.health"], spans["scheduler.metrics"]
    assert health.parent is not None
    assert attributes(health)["http.response.status_code"] == 200
    assert health.status.is_unset
    assert attributes(metrics)["http.response.status_code"] == 500
    assert not metrics.status.is_ok
    assert "s3cr3t" not in metrics.to_json()


@pytest.mark.asyncio
async def test_spans_of_the_core_nest_and_say_only_what_the_port_lets_them() -> None:
    """A commit within a look is its child; an exception is told by its type alone."""
    async with recording() as recorded:
        tracer = recorded.traces.tracer
        with tracer.span(SpanName.RECONCILE_WORK, workload_id="w1", node_id="n1") as outer:
            outer.ends_as("ApplyRunning")
            assert tracer.headers()[0][0] == "traceparent"
            with pytest.raises(ValueError, match="s3"), tracer.span(SpanName.COMMIT, size=3):
                raise ValueError("s3cr3t")
        with tracer.span(SpanName.AGENT_CALL, node_id="n1", operation="ListWorkloads"):
            pass
        assert tracer.headers() == ()
        spans = recorded.spans()
    work, commit = spans["reconcile.work"], spans["store.commit"]
    assert work.context is not None
    assert commit.parent is not None
    assert commit.parent.span_id == work.context.span_id
    assert (commit.status.is_ok, commit.status.description) == (False, "ValueError")
    assert "s3cr3t" not in commit.to_json()
    assert attributes(commit) == {"scheduler.size": 3}
    assert attributes(work) == {
        "scheduler.workload_id": "w1",
        "scheduler.node_id": "n1",
        "scheduler.outcome": "ApplyRunning",
    }
    call = spans["persys.agent.v1.AgentService/ListWorkloads"]
    assert attributes(call)["rpc.method"] == "ListWorkloads"


@pytest.mark.asyncio
async def test_histograms_have_exemplars_where_a_trace_is_kept() -> None:
    """OpenMetrics shows the trace of a measurement; one that is not kept is none to point to."""
    metrics = Metrics()
    observer = PrometheusObserver(metrics)
    async with recording() as recorded:
        with recorded.traces.tracer.span(SpanName.RECONCILE_PASS):
            observer.record(Metric.RECONCILE_CYCLE_SECONDS, 0.3, {})
        span = recorded.spans()["reconcile.pass"]
    assert span.context is not None
    page, content_type = metrics.page("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert f'trace_id="{span.context.trace_id:032x}"' in page.decode()
    plain, content_type = metrics.page("text/plain")
    assert content_type.startswith("text/plain")
    assert b"trace_id" not in plain

    others = Metrics()
    async with recording(sampling.ALWAYS_OFF) as unkept:
        with unkept.traces.tracer.span(SpanName.RECONCILE_PASS):
            PrometheusObserver(others).record(Metric.RECONCILE_CYCLE_SECONDS, 0.3, {})
    assert b"trace_id" not in others.page("application/openmetrics-text; version=1.0.0")[0]


def test_a_span_says_no_text_of_a_request() -> None:
    """Words that are no word of their set, and ids that are none, are left out."""
    request = pb.ApplyWorkloadRequest(
        workload_id="a b", desired_state="s3cr3t", spec=pb.WorkloadSpec(type="s3cr3t")
    )
    assert dict(request_facts(request)) == {}
    wanted = pb.ListWorkloadsRequest(node_id="n1", status="Running")
    assert dict(request_facts(wanted)) == {
        "scheduler.filter_node_id": "n1",
        "scheduler.filter_status": "running",
    }
    assert dict(request_facts(pb.HeartbeatRequest(node_id="n1"))) == {"scheduler.node_id": "n1"}
    assert dict(request_facts(object())) == {}


@pytest.mark.slow
def test_off_is_off() -> None:
    """Without an endpoint nothing is traced, nothing is imported for it and no thread runs."""
    assert isinstance(open_traces(load_settings({})), NoTraces)
    null = NullTracer()
    first, second = null.span(SpanName.COMMIT, size=1), null.span(SpanName.AGENT_CALL, node_id="n")
    assert first is second
    assert null.headers() == ()
    check = (
        "import sys, persys_server.run, persys_server.dev\n"
        "from persys_server.observability.tracing import open_traces\n"
        "from persys_server.settings import load_settings\n"
        "open_traces(load_settings({}))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    run = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == "[]"

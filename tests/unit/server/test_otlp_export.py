"""Spans on their way: both protocols, what goes along, and collectors that are away (M03)."""

from __future__ import annotations

import asyncio
import io
import logging
import time

import pytest

from persys_core.ports.tracer import SpanName
from persys_server.observability.library_lines import LibraryLines
from persys_server.observability.logging import configure_logging
from persys_server.observability.tracing import open_traces
from persys_server.settings import LogFormat, Settings, load_settings
from tests.e2e.processes import free_port
from tests.otlp import grpc_collector, http_collector, silent_collector

pytestmark = pytest.mark.slow


def settings(endpoint: str, **others: str) -> Settings:
    return load_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **others})


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_spans_arrive(protocol: str) -> None:
    """Over each protocol: the span, who sent it, and the headers that were asked for."""
    collecting = http_collector() if protocol == "http/protobuf" else grpc_collector()
    async with collecting as collector:
        traces = open_traces(
            settings(
                f"http://me:s3cr3t@127.0.0.1:{collector.port}",
                OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
                OTEL_EXPORTER_OTLP_HEADERS="X-Tenant=7",
                OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test",
            )
        )
        with traces.tracer.span(SpanName.COMMIT, size=2):
            pass
        await traces.aclose()
        span = await collector.has("store.commit")
    assert span.attributes == {"scheduler.size": "2"}
    assert span.resource["service.name"] == "persys-scheduler"
    assert span.resource["deployment.environment"] == "test"
    assert collector.headers["authorization"] == "Basic bWU6czNjcjN0"
    assert collector.headers["x-tenant"] == "7"


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("silent", [True, False], ids=["silent", "closed"])
async def test_the_end_waits_for_no_collector(protocol: str, silent: bool) -> None:
    """M03: more spans than the queue holds are taken at once, and the end comes within 5 s."""
    async with silent_collector() as port:
        where = f"127.0.0.1:{port if silent else free_port()}"
        traces = open_traces(settings(where, OTEL_EXPORTER_OTLP_PROTOCOL=protocol))
        for _ in range(6000):
            with traces.tracer.span(SpanName.COMMIT, size=2):
                pass
        # Lets the sender meet the collector before the end.
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await traces.aclose()
        assert time.monotonic() - began < 5


def record(name: str, text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, "", 0, text, values, None)


def test_the_library_repeats_itself_once_a_minute() -> None:
    """Its errors come through our log, thinned out; everybody else's are not touched."""
    now = [0.0]
    lines = LibraryLines(lambda: now[0])
    name = "opentelemetry.exporter.otlp"
    passed = [lines.filter(record(name, "failed: %s", n)) for n in range(100)]
    assert passed == [True] + [False] * 99
    assert lines.filter(record(name, "queue full"))
    assert all(lines.filter(record("persys_server", "again")) for _ in range(3))
    now[0] = 61.0
    late = record(name, "failed: %s", "x")
    assert lines.filter(late)
    assert late.getMessage() == "failed: x (99 such lines left out)"


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_errors_of_the_library_are_told_without_secrets(protocol: str) -> None:
    """A failing export is a line of ours that holds neither a password nor a header."""
    wanted = settings(
        f"me:s3cr3t-pass@127.0.0.1:{free_port()}",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_EXPORTER_OTLP_HEADERS="x-token=s3cr3t-token",
    )
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure_logging("info", LogFormat.JSON, stream=stream, secrets=wanted.secrets)
    try:
        traces = open_traces(wanted)
        with traces.tracer.span(SpanName.COMMIT, size=2):
            pass
        await traces.aclose()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert "opentelemetry.exporter.otlp" in stream.getvalue()
    assert "s3cr3t" not in stream.getvalue()

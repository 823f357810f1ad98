"""A replica as a process, traced: the spans that come out, and collectors that do not take them."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from tests.e2e.processes import (
    Server,
    agents,
    client,
    container,
    free_port,
    quick_node,
    scraped,
    server,
    watching,
)
from tests.otlp import Collector, Seen, grpc_collector, http_collector, silent_collector

pytestmark = pytest.mark.slow

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = (("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"),)
RPC = "persys.control.v1.AgentControl/"
AGENT = "persys.agent.v1.AgentService/"
REQUESTS = 100


def full_of_secrets() -> pb.ApplyWorkloadRequest:
    request = container("w1")
    request.spec.container.env.update({"DB_PASSWORD": "s3cr3t-a", "PLAIN": "s3cr3t-b"})
    request.spec.container.command.extend(["serve", "--token", "s3cr3t-c"])
    request.spec.metadata["note"] = "s3cr3t-d"
    return request


def child_of(collector: Collector, parent: Seen, name: str) -> Seen:
    return next(span for span in collector.named(name) if span.parent_id == parent.span_id)


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_a_workload_is_followed_to_its_agent(protocol: str, tmp_path: Path) -> None:
    """From the caller's trace over the commit, and from the reconcile look to the agent; pages and
    passes too. Lines of the log name the trace. No span holds anything of the spec."""
    collecting = http_collector() if protocol == "http/protobuf" else grpc_collector()
    async with collecting as collector, _traced(tmp_path, collector.port, protocol) as running:
        async with (
            agents(running.address, quick_node("n1")),
            watching(running.address) as eye,
            client(running.address) as stub,
        ):
            await stub.ApplyWorkload(full_of_secrets(), timeout=5, metadata=TRACEPARENT)
            assert await eye.until(
                lambda seen: [each.status for each in seen.workloads] == ["Running"], 20
            )
            bad = pb.ApplyWorkloadRequest(workload_id="odd word", desired_state="odd word")
            with pytest.raises(Exception, match="INVALID_ARGUMENT"):
                await stub.ApplyWorkload(bad, timeout=5, metadata=TRACEPARENT)
        await scraped(running)
        for name in ("scheduler.metrics", "reconcile.pass", f"{AGENT}ListWorkloads"):
            await collector.has(name)
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0

        applied = collector.named(f"{RPC}ApplyWorkload")[0]
        assert applied.trace_id == TRACE
        assert applied.attributes["scheduler.workload_id"] == "w1"
        assert child_of(collector, applied, "store.commit").trace_id == TRACE
        sent = await collector.has(f"{AGENT}ApplyWorkload")
        look = next(span for span in collector.spans if span.span_id == sent.parent_id)
        assert (look.name, look.attributes["scheduler.workload_id"]) == ("reconcile.work", "w1")
        assert sent.resource["service.name"] == "persys-scheduler"
        assert f'"trace_id": "{TRACE}"' in running.text
        said = "".join(span.raw for span in collector.spans)
        assert "s3cr3t" not in said
        assert "odd word" not in said
        assert "s3cr3t" not in running.text


@asynccontextmanager
async def _traced(folder: Path, port: int, protocol: str) -> AsyncIterator[Server]:
    async with server(
        folder,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"127.0.0.1:{port}",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        LOG_FORMAT="json",
    ) as running:
        yield running


async def _cost(running: Server) -> float:
    """Seconds that the requests take, one after another; the best of three."""
    async with client(running.address) as stub:
        costs = []
        for _ in range(3):
            began = time.perf_counter()
            for _ in range(REQUESTS):
                await stub.ListNodes(pb.ListNodesRequest(), timeout=5)
            costs.append(time.perf_counter() - began)
    return min(costs)


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
async def test_a_collector_that_is_away_costs_nothing(protocol: str, tmp_path: Path) -> None:
    """M03: with a closed port and with one that accepts and is silent, requests take about as long
    as without tracing, and SIGTERM still ends the process with 0 in less than 5 s."""
    for name in ("off", "closed", "silent"):
        (tmp_path / name).mkdir()
    async with server(tmp_path / "off") as untraced:
        usual = await _cost(untraced)
    async with silent_collector() as silent:
        for name, port in (("closed", free_port()), ("silent", silent)):
            async with _traced(tmp_path / name, port, protocol) as running:
                cost = await _cost(running)
                began = time.monotonic()
                running.signal(signal.SIGTERM)
                assert await running.ended() == 0
                assert time.monotonic() - began < 5
            # A wait for the collector would be hundreds of times as much.
            assert cost < 10 * usual, f"{name}: {cost:.2f} s instead of {usual:.2f} s"

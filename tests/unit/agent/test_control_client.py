from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio
import pytest

from persys_agent.control_client import ControlClient, open_control_channel
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.usage import NodeUsage
from persys_proto.control.v1 import control_pb2 as wire
from persys_proto.control.v1 import control_pb2_grpc

pytestmark = pytest.mark.asyncio
AT = datetime(2026, 1, 2, tzinfo=UTC)


class Listener(control_pb2_grpc.AgentControlServicer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.registrations: list[wire.RegisterNodeRequest] = []
        self.beats: list[wire.HeartbeatRequest] = []
        self.holder = ""

    async def RegisterNode(
        self, request: wire.RegisterNodeRequest, context: Any
    ) -> wire.RegisterNodeResponse:
        """Accept it, unless somebody holds the node id."""
        self.registrations.append(request)
        if self.holder:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"held by {self.holder}")
        return wire.RegisterNodeResponse(accepted=True)

    async def Heartbeat(
        self, request: wire.HeartbeatRequest, context: Any
    ) -> wire.HeartbeatResponse:
        """Acknowledge it."""
        self.beats.append(request)
        return wire.HeartbeatResponse(acknowledged=True)


@asynccontextmanager
async def told(**options: Any) -> AsyncIterator[tuple[Listener, ControlClient]]:
    listener = Listener()
    server = grpc.aio.server()
    control_pb2_grpc.add_AgentControlServicer_to_server(listener, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_control_channel(f"127.0.0.1:{port}") as channel:
            yield listener, ControlClient(channel, **options)
    finally:
        await server.stop(None)


async def test_a_registration_says_what_only_ours_say() -> None:
    """The cluster, what the host keeps, and after how long exclusive work is stopped (A22)."""
    node = RegisterNode(
        "n1",
        Resources.of(cpu_millicores=4000),
        "h:1",
        frozenset(),
        reserved=Resources.of(memory_mb=256),
        cluster_id="c1",
        stop_after_seconds=120,
        boot_id="b1",
    )
    async with told() as (listener, client):
        await client.register(node)
    (sent,) = listener.registrations
    assert (sent.cluster_id, sent.stop_after_seconds, sent.boot_id) == ("c1", 120, "b1")
    assert [(each.name, each.amount) for each in sent.capabilities.reserved] == [("memory", 256)]


async def test_an_id_that_is_taken_is_an_answer() -> None:
    """The scheduler was reached, and why it refused is for people to read."""
    async with told() as (listener, client):
        listener.holder = "10.0.0.1:50051"
        answer = await client.register(RegisterNode("n1", Resources(), "h:1", frozenset()))
    assert (answer.accepted, answer.id_taken) == (False, True)
    assert answer.reason == "held by 10.0.0.1:50051"


async def test_a_beat_says_what_was_promised_and_why_something_failed() -> None:
    """Allocated amounts, the reason in the enumeration's words, and whether to retry (A7, A22)."""
    report = AgentReport(
        "w1",
        AgentState.FAILED,
        "r1",
        message="no room",
        failure_code="RESOURCE_QUOTA_EXCEEDED",
        reported_at=AT,
        metadata={"retryable": "true"},
    )
    used = NodeUsage("n1", Resources.of(memory_mb=7), AT)
    promised = Resources.of(cpu_millicores=500, memory_mb=64, disk_gb=2)
    async with told(allocated=lambda: promised) as (listener, client):
        await client.heartbeat(Heartbeat("n1", (report,), used, boot_id="b", sequence=3))
    (sent,) = listener.beats
    assert sent.usage.cpu_allocated_millicores == 500
    assert (sent.usage.memory_allocated_mb, sent.usage.disk_allocated_gb) == (64, 2)
    (status,) = sent.workload_statuses
    assert status.failure_reason == wire.INSUFFICIENT_RESOURCES
    assert (status.reason.code, status.reason.retryable) == ("RESOURCE_QUOTA_EXCEEDED", True)
    assert status.last_transition.ToDatetime(tzinfo=UTC) == AT

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from persys_adapters.agent_grpc import GrpcAgents, plain_opener
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ContainerSpec, WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.agents import (
    Accepted,
    AgentHealth,
    ApplyRequest,
    DeleteRequest,
    NotFound,
    Refused,
    Unreachable,
)
from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.agent.v1 import agent_pb2_grpc

pytestmark = pytest.mark.slow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LONG = timedelta(seconds=20)


class FakeAgent(agent_pb2_grpc.AgentServiceServicer):
    """Answers at once, or never while ``hangs``; notes what it sees."""

    def __init__(self) -> None:
        self.hangs = False
        self.calls = 0
        self.cancelled = 0
        self.metadata: dict[str, Any] = {}
        self.deletes: list[wire.DeleteWorkloadRequest] = []
        self.apply_answer = wire.ApplyWorkloadResponse(applied=True)
        self.delete_answer = wire.DeleteWorkloadResponse(success=True)

    async def _come_in(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self.calls += 1
        self.metadata = dict(context.invocation_metadata() or ())
        if self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

    async def ListWorkloads(
        self, request: wire.ListWorkloadsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.ListWorkloadsResponse:
        await self._come_in(context)
        return wire.ListWorkloadsResponse()

    async def ApplyWorkload(
        self, request: wire.ApplyWorkloadRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.ApplyWorkloadResponse:
        await self._come_in(context)
        return self.apply_answer

    async def DeleteWorkload(
        self, request: wire.DeleteWorkloadRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.DeleteWorkloadResponse:
        await self._come_in(context)
        self.deletes.append(request)
        return self.delete_answer

    async def HealthCheck(
        self, request: wire.HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.HealthCheckResponse:
        return wire.HealthCheckResponse(healthy=True, version="v1")


@asynccontextmanager
async def serving(agent: FakeAgent) -> AsyncIterator[Node]:
    """A node of its own for the agent."""
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentServiceServicer_to_server(agent, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield node(f"n{port}", port)
    finally:
        await server.stop(None)


@asynccontextmanager
async def calling(calls_per_node: int = 8) -> AsyncIterator[GrpcAgents]:
    agents = GrpcAgents(calls_per_node=calls_per_node)
    try:
        yield agents
    finally:
        await agents.aclose()


def node(name: str, port: int) -> Node:
    return Node(name, Resources(), f"127.0.0.1:{port}", frozenset(), NOW)


def apply(epoch: int = 0) -> ApplyRequest:
    spec = WorkloadSpec(WorkloadType.CONTAINER, Resources(), ContainerSpec("nginx"))
    return ApplyRequest("w1", "r1", DesiredState.RUNNING, spec, epoch)


@pytest.mark.asyncio
async def test_headers_go_along_with_every_call() -> None:
    """What the present span says of itself reaches the agent, beside the epoch."""
    traced = (("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),)
    agent, agents = FakeAgent(), GrpcAgents(headers=lambda: traced)
    async with serving(agent) as there:
        await agents.list(there, LONG)
        assert agent.metadata["traceparent"] == traced[0][1]
        await agents.apply(there, apply(epoch=7), LONG)
        assert agent.metadata["traceparent"] == traced[0][1]
        assert agent.metadata["persys-epoch"] == "7"
        await agents.aclose()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_one_hung_node_of_fifty_costs_one_deadline() -> None:
    """Every cycle ends within the deadline and a second, with the other 49 answered (G02)."""
    hung, well = FakeAgent(), FakeAgent()
    hung.hangs = True
    loop = asyncio.get_running_loop()
    async with serving(hung) as bad, serving(well) as good, calling() as agents:
        port = int(good.endpoint.rpartition(":")[2])
        nodes = [bad, *(node(f"n{number}", port) for number in range(49))]
        for _ in range(3):
            began = loop.time()
            outcomes = await asyncio.gather(*(agents.list(each, SECOND) for each in nodes))
            assert loop.time() - began < 2
            assert isinstance(outcomes[0], Unreachable)
            assert outcomes[1:] == [()] * 49
        assert agents.open_channels <= len(nodes)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_five_hundred_reconnects_leave_no_more_channels_than_nodes() -> None:
    """Changing endpoints and new certificates close what they replace (G02)."""
    first, second = FakeAgent(), FakeAgent()
    async with serving(first) as one, serving(second) as two, calling() as agents:
        before = _open_sockets()
        ports = [int(each.endpoint.rpartition(":")[2]) for each in (one, two)]
        for number in range(500):
            assert await agents.list(node("n1", ports[number % 2]), LONG) == ()
            if number % 100 == 0:
                agents.reopen(plain_opener())
        await _until(lambda: agents.open_channels <= 1)
        # One connection, whose two ends both belong to this process.
        await _until(lambda: _open_sockets() <= before + 2)
        assert first.calls == second.calls == 250


@pytest.mark.asyncio
async def test_calls_to_one_node_are_bounded_and_wait_their_turn() -> None:
    """With two slots two calls are on the wire; the others end at their own deadline."""
    agent = FakeAgent()
    agent.hangs = True
    async with serving(agent) as at, calling(calls_per_node=2) as agents:
        outcomes = await asyncio.gather(*(agents.list(at, SECOND / 2) for _ in range(6)))
        assert agent.calls == 2
        texts = [outcome.message for outcome in outcomes if isinstance(outcome, Unreachable)]
        assert len(texts) == 6
        assert sum("earlier calls" in text for text in texts) == 4
        agent.hangs = False
        assert await agents.list(at, LONG) == ()


@pytest.mark.asyncio
async def test_giving_up_reaches_the_agent() -> None:
    """When the caller is cancelled the call is cancelled on the wire and its slot is free."""
    agent = FakeAgent()
    agent.hangs = True
    async with serving(agent) as at, calling(calls_per_node=1) as agents:
        task = asyncio.create_task(agents.list(at, LONG))
        await _until(lambda: agent.calls == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _until(lambda: agent.cancelled == 1)
        agent.hangs = False
        assert await agents.list(at, LONG) == ()


@pytest.mark.asyncio
async def test_forgetting_a_node_ends_its_calls_as_unreachable() -> None:
    """The closing of a channel is not mistaken for a cancellation of the caller."""
    agent = FakeAgent()
    agent.hangs = True
    async with serving(agent) as at, calling() as agents:
        task = asyncio.create_task(agents.list(at, LONG))
        await _until(lambda: agent.calls == 1)
        await agents.forget(at.id)
        async with asyncio.timeout(LONG.total_seconds() / 2):
            outcome = await task
        assert isinstance(outcome, Unreachable)
        assert not outcome.deadline_exceeded
        assert agents.open_channels == 0


@pytest.mark.asyncio
async def test_a_connection_that_stays_silent_is_replaced() -> None:
    """After three deadlines in a row a new channel is opened: the old one may be dead."""
    opened: list[str] = []
    plain = plain_opener()

    def opener(endpoint: str) -> grpc.aio.Channel:
        opened.append(endpoint)
        return plain(endpoint)

    agent = FakeAgent()
    agent.hangs = True
    async with serving(agent) as at:
        agents = GrpcAgents(opener)
        for _ in range(3):
            await agents.list(at, SECOND / 5)
        assert len(opened) == 1
        agent.hangs = False
        assert await agents.list(at, LONG) == ()
        assert len(opened) == 2
        await agents.aclose()


@pytest.mark.asyncio
async def test_the_epoch_travels_in_the_metadata() -> None:
    """Applies and deletes carry it; a call without one has no such key."""
    agent = FakeAgent()
    async with serving(agent) as at, calling() as agents:
        assert isinstance(await agents.apply(at, apply(epoch=42), LONG), Accepted)
        assert agent.metadata["persys-epoch"] == "42"
        assert isinstance(await agents.delete(at, DeleteRequest("w1", 43, True), LONG), Accepted)
        assert agent.metadata["persys-epoch"] == "43"
        assert agent.deletes[0].delete_volumes
        await agents.list(at, LONG)
        assert "persys-epoch" not in agent.metadata


@pytest.mark.asyncio
async def test_answers_of_an_apply_are_told_apart() -> None:
    """Applied, skipped, and neither."""
    agent = FakeAgent()
    async with serving(agent) as at, calling() as agents:
        agent.apply_answer = wire.ApplyWorkloadResponse(applied=True, skipped=True)
        assert await agents.apply(at, apply(), LONG) == Accepted(skipped=True)
        agent.apply_answer = wire.ApplyWorkloadResponse(message="[OUT_OF_CPU] full")
        assert await agents.apply(at, apply(), LONG) == Refused("[OUT_OF_CPU] full", "out_of_cpu")


@pytest.mark.asyncio
async def test_a_spec_that_cannot_be_sent_is_refused_without_a_call() -> None:
    """The agent is not bothered with it."""
    agent = FakeAgent()
    spec = WorkloadSpec(WorkloadType.COMPOSE, Resources(), ComposeSpec(git_repo="https://h/r"))
    async with serving(agent) as at, calling() as agents:
        request = ApplyRequest("w1", "r1", DesiredState.RUNNING, spec, 1)
        outcome = await agents.apply(at, request, LONG)
        assert isinstance(outcome, Refused)
        assert outcome.code == "invalid_spec"
        assert agent.calls == 0


@pytest.mark.asyncio
async def test_a_delete_that_found_nothing_is_not_found() -> None:
    """Whatever other reason an agent has for its "no" is a refusal."""
    agent = FakeAgent()
    gone = "failed to delete workload: workload not found: workload not found"
    async with serving(agent) as at, calling() as agents:
        agent.delete_answer = wire.DeleteWorkloadResponse(message=gone)
        assert await agents.delete(at, DeleteRequest("w1", 1), LONG) == NotFound()
        agent.delete_answer = wire.DeleteWorkloadResponse(message="busy")
        assert await agents.delete(at, DeleteRequest("w1", 1), LONG) == Refused("busy")


@pytest.mark.asyncio
async def test_an_agent_of_another_age_refuses_what_it_does_not_know() -> None:
    """An unimplemented call is an answer, not silence."""
    async with serving(FakeAgent()) as at, calling() as agents:
        outcome = await agents.status(at, "w1", LONG)
        assert isinstance(outcome, Refused)
        assert outcome.code == "unimplemented"
        assert await agents.last_error(at, "w1", LONG) == ""
        assert await agents.health(at, LONG) == AgentHealth(True, "v1")


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(1500):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("did not hold within 15 s")


def _open_sockets() -> int:
    links = Path("/proc/self/fd").iterdir()
    return sum(_target(link).startswith("socket:") for link in links)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # closed since it was listed
        return ""

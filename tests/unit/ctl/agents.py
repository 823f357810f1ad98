"""A fake agent on a real port, for the verbs that speak to agents themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import grpc
import grpc.aio

from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.agent.v1 import agent_pb2_grpc
from persys_proto.control.v1 import control_pb2 as pb
from tests.unit.ctl.harness import FakeScheduler, Refusal

if TYPE_CHECKING:
    from persys_proto.agent.v1.agent_pb2_grpc import _ServicerContext as Context

__all__ = ["FakeAgent", "a_second_after", "line", "serving", "with_web"]

Item: TypeAlias = wire.LogLine | Refusal | None


def line(text: str, at_ms: int = 0, stream: str = "stdout", source: str = "") -> wire.LogLine:
    """A line of output."""
    return wire.LogLine(text=text, at_ms=at_ms, stream=stream, source=source)


def a_second_after(seconds: int) -> int:
    """Unix milliseconds of 2026-03-01T12:00:00Z and so many seconds."""
    return (1772366400 + seconds) * 1000


async def _echo(_: wire.ExecStart, given: bytes) -> Sequence[wire.ExecResponse]:
    return [wire.ExecResponse(stdout=given), wire.ExecResponse(exit_code=0)]


@dataclass
class FakeAgent(agent_pb2_grpc.AgentServiceServicer):
    """Has a list of lines, and a queue of what follows: a line, a refusal, or ``None`` for the end.

    ``answers`` makes the answers of a command from its start and all its input, which ends as a
    terminal's does, too: with Ctrl-D.
    """

    lines: list[wire.LogLine] = field(default_factory=list)
    live: asyncio.Queue[Item] = field(default_factory=asyncio.Queue)
    refusal: Refusal | None = None
    is_silent: bool = False
    on_logs: Callable[[wire.StreamLogsRequest], None] = lambda _: None
    answers: Callable[[wire.ExecStart, bytes], Awaitable[Sequence[wire.ExecResponse]]] = _echo
    asked: list[wire.StreamLogsRequest] = field(default_factory=list)
    started: list[wire.ExecStart] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def StreamLogs(
        self, request: wire.StreamLogsRequest, context: Context
    ) -> AsyncIterator[wire.LogLine]:
        self.asked.append(request)
        self.on_logs(request)
        if self.refusal:
            await context.abort(self.refusal.code, self.refusal.text)
        if self.is_silent:
            await asyncio.Event().wait()
        for each in self.lines[max(0, len(self.lines) - request.tail) :]:
            yield each
        while request.follow:
            item = await self.live.get()
            if isinstance(item, Refusal):
                await context.abort(item.code, item.text)
            if item is None:
                return
            self.lines.append(item)
            yield item

    async def Exec(
        self, request_iterator: AsyncIterator[wire.ExecRequest], context: Context
    ) -> AsyncIterator[wire.ExecResponse]:
        if self.refusal:
            await context.abort(self.refusal.code, self.refusal.text)
        try:
            given = b""
            async for request in request_iterator:
                match request.WhichOneof("message"):
                    case "start":
                        self.started.append(request.start)
                        self.began.set()
                        yield wire.ExecResponse(stderr=b"")
                    case "input":
                        given += request.input
                        if b"\x04" in given:
                            break
                    case _:
                        break
            for answer in await self.answers(self.started[-1], given):
                yield answer
        finally:
            self.left.set()


@asynccontextmanager
async def serving(
    agent: FakeAgent, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[str]:
    """The agent on a free port of this machine; the address comes out."""
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentServiceServicer_to_server(agent, server)
    port = (
        server.add_secure_port("127.0.0.1:0", credentials)
        if credentials
        else server.add_insecure_port("127.0.0.1:0")
    )
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def with_web(endpoint: str, status: str = "Running") -> FakeScheduler:
    """A scheduler that has the workload ``web`` on node n1, whose agent is at ``endpoint``."""
    return FakeScheduler(
        workloads={"web": pb.WorkloadView(workload_id="web", status=status, assigned_node_id="n1")},
        nodes={"n1": pb.NodeView(node_id="n1", status="Ready", grpc_endpoint=endpoint)},
    )

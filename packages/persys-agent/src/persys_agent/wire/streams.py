"""Logs and commands of a workload, as streams of messages.

Decided here: which workload may be looked into (one that this node has), and that a runtime's
iterator is closed whatever ends the stream, which ends the command.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import grpc
import structlog

from persys_agent.engine.backends import Backends
from persys_agent.runtimes.port import (
    ExecExit,
    ExecOutput,
    Interactive,
    LogLine,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.state.store import AgentState
from persys_agent.wire import messages
from persys_core.model.errors import PersysError
from persys_core.model.ids import WorkloadId
from persys_proto.agent.v1 import agent_pb2 as wire

__all__ = ["Sessions", "StreamRefusedError"]

_MOST_LINES = 100_000


class StreamRefusedError(PersysError):
    """The stream cannot be had; ``code`` is for the caller."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Sessions:
    """Opens streams on what the runtimes give."""

    def __init__(self, state: AgentState, backends: Backends) -> None:
        self._state = state
        self._backends = backends

    async def logs(self, request: wire.StreamLogsRequest) -> AsyncGenerator[wire.LogLine, None]:
        """The lines asked for. Raises ``StreamRefusedError``."""
        runtime = self._interactive(request.id)
        tail = min(max(request.tail, 0), _MOST_LINES)
        lines = runtime.logs(request.id, tail=tail, follow=request.follow)
        # Runtimes write generators; the port only promises iterators, which have no aclose.
        async with aclosing(cast("AsyncGenerator[LogLine]", lines)) as open_lines:
            try:
                async for line in open_lines:
                    yield messages.log_line(line)
            except (RuntimeFailedError, RuntimeUnavailableError) as error:
                raise _refused(error) from error

    async def execute(
        self, requests: AsyncIterator[wire.ExecRequest]
    ) -> AsyncGenerator[wire.ExecResponse, None]:
        """What the command writes. Raises ``StreamRefusedError``."""
        start = await _start(requests)
        runtime = self._interactive(start.id)
        # Only the program: what people type behind it may hold the workload's own secrets.
        program, words = start.command[0], len(start.command) - 1
        structlog.get_logger().info("exec", workload=start.id, program=program, more_words=words)
        items = runtime.execute(start.id, tuple(start.command), _input(requests), tty=start.tty)
        async with aclosing(cast("AsyncGenerator[ExecOutput | ExecExit]", items)) as open_items:
            try:
                async for item in open_items:
                    yield messages.exec_response(item)
            except (RuntimeFailedError, RuntimeUnavailableError) as error:
                raise _refused(error) from error

    def _interactive(self, workload_id: WorkloadId) -> Interactive:
        row = self._state.get(workload_id)
        if row is None:
            raise StreamRefusedError(
                grpc.StatusCode.NOT_FOUND, f'this node has no workload "{workload_id}"'
            )
        runtime = self._backends.interactive.get(row.type)
        if runtime is None:
            raise StreamRefusedError(
                grpc.StatusCode.UNIMPLEMENTED, f"{row.type} workloads have neither logs nor exec"
            )
        return runtime


async def _start(requests: AsyncIterator[wire.ExecRequest]) -> wire.ExecStart:
    first = await anext(aiter(requests), None)
    if first is None or first.WhichOneof("message") != "start" or not first.start.command:
        raise StreamRefusedError(
            grpc.StatusCode.INVALID_ARGUMENT,
            "the first message starts the command: start.id and start.command are needed",
        )
    return first.start


async def _input(requests: AsyncIterator[wire.ExecRequest]) -> AsyncIterator[bytes]:
    async for request in requests:
        if request.WhichOneof("message") != "input":
            return
        yield request.input


def _refused(error: RuntimeFailedError | RuntimeUnavailableError) -> StreamRefusedError:
    is_away = isinstance(error, RuntimeUnavailableError)
    code = grpc.StatusCode.UNAVAILABLE if is_away else grpc.StatusCode.FAILED_PRECONDITION
    return StreamRefusedError(code, str(error))

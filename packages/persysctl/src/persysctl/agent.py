"""One agent, spoken to directly: the output of a workload, and commands inside it.

Decided here: how a failed call to an agent is worded, and which of our errors it becomes. Where the
agent is, the scheduler says (``whereabouts``); it takes no part in the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import grpc
import grpc.aio

from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.aio import agent_service_stub
from persysctl.channel import REQUEST_ID_KEY, open_channel
from persysctl.errors import ConnectionLostError, CtlError, RefusedError, TooLateError
from persysctl.settings import ServerSettings

if TYPE_CHECKING:
    ExecCall: TypeAlias = grpc.aio.StreamStreamCall[wire.ExecRequest, wire.ExecResponse]

__all__ = ["Agent", "Place"]

_SETTLED = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workload is: the node, and the ``host:port`` of its agent.

    ``trouble`` is what the scheduler says of a node that is not ready; it makes no other place.
    """

    node_id: str
    endpoint: str
    trouble: str = field(default="", compare=False)


class Agent:
    """The agent of one node. Use as an async context manager.

    ``deadline`` bounds connecting and, in a stream that ends by itself, each silence, in seconds.
    """

    def __init__(self, settings: ServerSettings, place: Place, deadline: float) -> None:
        self._settings = settings.of_agent(place.endpoint)
        self._place = place
        self._deadline = deadline
        self._metadata = ((REQUEST_ID_KEY, settings.request_id),)
        self._channel = open_channel(self._settings)
        self._stub = agent_service_stub(self._channel)
        self.was_connected = False
        """Whether a connection stood, so that a failure is one of later."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._channel.close()

    async def connect(self) -> None:
        """Wait until the connection stands or has failed; the call that follows says how."""
        try:
            async with asyncio.timeout(self._deadline):
                state = self._channel.get_state(try_to_connect=True)
                while state not in _SETTLED:
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
        except TimeoutError as error:
            cause = f"no answer in {self._deadline:g} s"
            raise ConnectionLostError(self._no_connection(cause)) from error
        self.was_connected = state is grpc.ChannelConnectivity.READY

    async def logs(self, request: wire.StreamLogsRequest) -> AsyncGenerator[wire.LogLine, None]:
        """The lines of a workload's output, without end where they are followed."""
        await self.connect()
        call = self._stub.StreamLogs(request, metadata=self._metadata)
        patience = None if request.follow else self._deadline
        try:
            while True:
                async with asyncio.timeout(patience):
                    line = await call.read()
                if not isinstance(line, wire.LogLine):
                    return
                yield line
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error
        except TimeoutError as error:
            raise self._too_late() from error
        finally:
            call.cancel()

    async def execute(
        self, start: wire.ExecStart, given: AsyncIterator[bytes]
    ) -> AsyncGenerator[wire.ExecResponse, None]:
        """What a command writes, then its exit code; ``given`` is its input. Leaving ends it."""
        await self.connect()
        call = self._stub.Exec(metadata=self._metadata)
        _keep_outcome(call)
        feeding = asyncio.create_task(_feed(call, start, given))
        try:
            while isinstance(answer := await call.read(), wire.ExecResponse):
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error
        finally:
            feeding.cancel()
            call.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    def _too_late(self) -> CtlError:
        return TooLateError(
            f"{self._name} at {self._place.endpoint} gave no answer in {self._deadline:g} s;"
            " --timeout gives it longer"
        )

    @property
    def _name(self) -> str:
        return f"the agent of node {self._place.node_id}"

    def _no_connection(self, cause: str) -> str:
        how = "in plain text" if self._settings.tls is None else "with TLS"
        trouble = self._place.trouble
        known = f"The scheduler has the node as {trouble}.\n" if trouble else ""
        return (
            f"{self._name} cannot be reached from here at {self._place.endpoint} ({how}):"
            f" {cause or 'the connection was lost'}\n{known}"
            "The scheduler only says where agents are. Their addresses must be reachable from this"
            " machine,\nand are spoken to as the scheduler is: with its certificates, or in plain"
            " text. A name in their\ncertificates that is not the host is given with"
            " --agent-server-name."
        )

    def _translated(self, error: grpc.aio.AioRpcError) -> CtlError:
        code, text = error.code(), error.details() or ""
        stands = self._channel.get_state() is grpc.ChannelConnectivity.READY
        match code:
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED if not stands:
                return ConnectionLostError(self._no_connection(text))
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                return ConnectionLostError(
                    f"{self._name} broke the call off: {text or 'no reason'}"
                )
            case grpc.StatusCode.UNIMPLEMENTED:
                return RefusedError(
                    f"{self._name} does not know this call: it is of an older release, which gives"
                    " no logs and runs no commands"
                )
            case grpc.StatusCode.NOT_FOUND:
                return RefusedError(
                    f"{self._name} does not have this workload: {text or 'not found'}",
                    retryable=True,
                )
            case grpc.StatusCode.FAILED_PRECONDITION:
                return RefusedError(f"{self._name} cannot do this: {text}", retryable=True)
            case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
                return RefusedError(
                    f"{self._name} does not allow this: {text}\nAgents tell callers by their"
                    " certificate; it is given with --cert-file and --key-file."
                )
            case grpc.StatusCode.INVALID_ARGUMENT:
                return RefusedError(f"{self._name} takes the request for a wrong one: {text}")
            case _:
                return RefusedError(f"{self._name} failed: {code.name}: {text}", retryable=True)


class _KeptOutcome:
    """The inner call of grpc.aio, except that a write that fails does not set the outcome."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def set_internal_error(self, _: str) -> None:
        """Nothing: what the agent answers is the outcome."""


def _keep_outcome(call: ExecCall) -> None:
    """Have the agent's answer win over a write that failed because of it.

    A command may end, or be refused, while input is on its way to it. grpc.aio (1.60 to 1.85 at
    least) then ends the call with an INTERNAL of its own, and the exit code or the reason is lost.
    """
    inner = getattr(call, "_cython_call", None)
    if hasattr(inner, "set_internal_error"):
        setattr(call, "_cython_call", _KeptOutcome(inner))  # noqa: B010 - private


async def _feed(call: ExecCall, start: wire.ExecStart, given: AsyncIterator[bytes]) -> None:
    """Send the start and the input. A call that is over meanwhile is told by its answers."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await call.write(wire.ExecRequest(start=start))
        async for data in given:
            await call.write(wire.ExecRequest(input=data))
        await call.write(wire.ExecRequest(end_of_input=True))
        await call.done_writing()

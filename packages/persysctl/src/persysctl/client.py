"""One scheduler, spoken to over gRPC: the channel, deadlines, and errors for people.

Decided here: how a failed call is worded and which of our errors it becomes. Nothing is tried again
here; the commands that wait decide that for themselves.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Self, TypeVar

import grpc
import grpc.aio

from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2 as pb
from persysctl.agent import Agent, Place
from persysctl.calls import Call
from persysctl.channel import REQUEST_ID_KEY, open_channel
from persysctl.errors import ConnectionLostError, CtlError, RefusedError, TooLateError
from persysctl.node_operations import NodeOperations
from persysctl.recovery import Recovery
from persysctl.settings import ServerSettings
from persysctl.status_details import field_violations
from persysctl.volume_operations import VolumeOperations

__all__ = ["DEFAULT_DEADLINE_SECONDS", "Client"]

DEFAULT_DEADLINE_SECONDS = 15.0

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


class Client:
    """The calls that commands make. Use as an async context manager.

    Size: one method per call.
    """

    def __init__(self, settings: ServerSettings, deadline: float) -> None:
        self._settings = settings
        self._deadline = deadline
        self._metadata = ((REQUEST_ID_KEY, settings.request_id),)
        self._channel = open_channel(settings)
        self._stub = agent_control_stub(self._channel)
        self.operations = NodeOperations(self._stub, self._ask)
        """What an operator does to nodes."""
        self.recovery = Recovery(self._stub, self._ask)
        """The ways out of recovery."""
        self.volumes = VolumeOperations(self._stub, self._ask)
        """Volumes, and what an operator answers for."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._channel.close()

    async def apply(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
        """Store a wish."""
        return await self._ask(self._stub.ApplyWorkload, request)

    async def plan(
        self, request: pb.ApplyWorkloadRequest, max_examples: int
    ) -> pb.PlanWorkloadResponse:
        """What ``apply`` would do; nothing is stored."""
        asked = pb.PlanWorkloadRequest(apply=request, max_examples=max_examples)
        return await self._ask(self._stub.PlanWorkload, asked)

    async def delete(self, workload_id: str, *, force: bool) -> pb.DeleteWorkloadResponse:
        """Begin a deletion."""
        request = pb.DeleteWorkloadRequest(workload_id=workload_id, force=force)
        return await self._ask(self._stub.DeleteWorkload, request)

    async def retry(self, workload_id: str, *, discard_local: bool) -> pb.RetryWorkloadResponse:
        """Forget old failures and try again now."""
        request = pb.RetryWorkloadRequest(workload_id=workload_id, discard_local=discard_local)
        return await self._ask(self._stub.RetryWorkload, request)

    async def workload(self, workload_id: str) -> pb.GetWorkloadResponse:
        """One workload."""
        request = pb.GetWorkloadRequest(workload_id=workload_id)
        return await self._ask(self._stub.GetWorkload, request)

    async def workloads(self, *, node_id: str, status: str) -> pb.ListWorkloadsResponse:
        """Workloads that match; empty filters match all."""
        request = pb.ListWorkloadsRequest(node_id=node_id, status=status)
        return await self._ask(self._stub.ListWorkloads, request)

    async def node(self, node_id: str) -> pb.GetNodeResponse:
        """One node."""
        return await self._ask(self._stub.GetNode, pb.GetNodeRequest(node_id=node_id))

    async def nodes(self, *, status: str = "") -> pb.ListNodesResponse:
        """Nodes that match; an empty filter matches all."""
        return await self._ask(self._stub.ListNodes, pb.ListNodesRequest(status=status))

    async def explain(self, workload_id: str, max_examples: int) -> pb.ExplainWorkloadResponse:
        """Why a workload stands where it stands."""
        request = pb.ExplainWorkloadRequest(workload_id=workload_id, max_examples=max_examples)
        return await self._ask(self._stub.ExplainWorkload, request)

    async def summary(self) -> pb.GetClusterSummaryResponse:
        """Counts of the cluster."""
        return await self._ask(self._stub.GetClusterSummary, pb.GetClusterSummaryRequest())

    async def drifts(self, *, node_id: str) -> pb.ListDriftsResponse:
        """The drifts that stand; an empty filter matches all nodes."""
        return await self._ask(self._stub.ListDrifts, pb.ListDriftsRequest(node_id=node_id))

    async def events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        """Events of the past, oldest first."""
        return await self._ask(self._stub.ListEvents, request)

    async def watch_events(
        self, request: pb.WatchEventsRequest
    ) -> AsyncGenerator[pb.SchedulerEventView, None]:
        """Events as they come, without end; the stream has no deadline."""
        call = self._stub.WatchEvents(request, metadata=self._metadata)
        try:
            async for event in call:
                yield event
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error
        finally:
            call.cancel()

    def agent_at(self, place: Place) -> Agent:
        """The agent of a node, spoken to without the scheduler in between."""
        return Agent(self._settings, place, self._deadline)

    async def _ask(self, call: Call[RequestT, AnswerT], request: RequestT, /) -> AnswerT:
        try:
            return await call(request, timeout=self._deadline, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error

    def _translated(self, error: grpc.aio.AioRpcError) -> CtlError:
        state = self._channel.get_state()
        answered = state is grpc.ChannelConnectivity.READY
        return _as_ctl_error(error, self._settings, self._deadline, answered=answered)


# ------------------------------------------------------------------------- errors


def _as_ctl_error(
    error: grpc.aio.AioRpcError, settings: ServerSettings, deadline: float, *, answered: bool
) -> CtlError:
    """Our error for a failed call; ``answered``: the connection stands, so this is an answer."""
    code, text = error.code(), error.details() or ""
    match code:
        case grpc.StatusCode.UNAVAILABLE if not answered:
            return ConnectionLostError(_no_connection(settings, text))
        case grpc.StatusCode.UNAVAILABLE:
            return RefusedError(f"the scheduler cannot do this now: {text}", retryable=True)
        case grpc.StatusCode.DEADLINE_EXCEEDED if not answered:
            return ConnectionLostError(_no_connection(settings, f"no answer in {deadline:g} s"))
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            late = f"{settings.server} gave no answer in {deadline:g} s; --timeout gives it longer"
            return TooLateError(late)
        case grpc.StatusCode.CANCELLED:
            return ConnectionLostError(_no_connection(settings, "the call was broken off"))
        case grpc.StatusCode.NOT_FOUND:
            return RefusedError(text or "not found", not_found=True)
        case grpc.StatusCode.INVALID_ARGUMENT:
            return RefusedError(_field_errors(error, text))
        case _:
            return RefusedError(_WORDS.get(code, _other)(code, text, settings))


def _no_connection(settings: ServerSettings, cause: str) -> str:
    how = "in plain text" if settings.tls is None else "with TLS"
    return (
        f"no scheduler at {settings.server} ({how}): {cause or 'the connection was lost'}\n"
        "Is it running? Another address is given with --server HOST:PORT or PERSYS_SERVER,"
        " certificates with --ca-file, --cert-file and --key-file."
    )


def _field_errors(error: grpc.aio.AioRpcError, text: str) -> str:
    metadata = error.trailing_metadata() or ()
    violations = field_violations((key, value) for key, value in metadata)
    if not violations:
        return f"the request is not valid: {text}"
    lines = (f"  {field}: {description}" for field, description in violations)
    return "\n".join(["the request is not valid:", *lines])


def _denied(_: grpc.StatusCode, text: str, __: ServerSettings) -> str:
    return (
        f"not allowed: {text}\nThe scheduler tells callers by their certificate; operators present"
        " one for persysctl with --cert-file and --key-file."
    )


def _unknown_call(_: grpc.StatusCode, text: str, settings: ServerSettings) -> str:
    reason = f": {text}" if text else ""
    return f"the scheduler at {settings.server} does not know this call (is it older?){reason}"


def _fault(_: grpc.StatusCode, text: str, settings: ServerSettings) -> str:
    return f"the scheduler failed: {text}\nIts log has more under request id {settings.request_id}."


def _plain(_: grpc.StatusCode, text: str, __: ServerSettings) -> str:
    return f"refused: {text}"


def _other(code: grpc.StatusCode, text: str, settings: ServerSettings) -> str:
    return f"{code.name}: {text} (request id {settings.request_id})"


_WORDS: dict[grpc.StatusCode, Callable[[grpc.StatusCode, str, ServerSettings], str]] = {
    grpc.StatusCode.PERMISSION_DENIED: _denied,
    grpc.StatusCode.UNAUTHENTICATED: _denied,
    grpc.StatusCode.UNIMPLEMENTED: _unknown_call,
    grpc.StatusCode.INTERNAL: _fault,
    grpc.StatusCode.UNKNOWN: _fault,
    grpc.StatusCode.FAILED_PRECONDITION: _plain,
    grpc.StatusCode.ABORTED: _plain,
    grpc.StatusCode.ALREADY_EXISTS: _plain,
    grpc.StatusCode.RESOURCE_EXHAUSTED: _plain,
}

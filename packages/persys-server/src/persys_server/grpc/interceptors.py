"""The boundary around every RPC: request id, span, phase, deadline, metrics, errors to codes.

Decided here: what happens around a call, in one place and order. A broad catch stands here and
nowhere below: what the core does not mean is a bug, counted and logged with its traceback, and
the caller learns a request id only.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
import structlog
from attrs import define, field
from google.protobuf.message import DecodeError

from persys_core.model.errors import FieldError, InvalidInputError
from persys_core.ports.clock import Clock
from persys_core.ports.observer import Metric
from persys_server.grpc.context import Context, seconds_left
from persys_server.grpc.errors import Answer, NotServingError, answer_of, internal_answer
from persys_server.observability.labels import METHODS
from persys_server.observability.logging import request_secrets
from persys_server.observability.metrics import Metrics
from persys_server.observability.tracing import Headers, NoTraces, Served, Traces
from persys_server.phase import Phase, PhaseSwitch

__all__ = ["DEFAULT_DEADLINE_SECONDS", "REQUEST_ID_KEY", "RequestBoundary"]

REQUEST_ID_KEY = "x-request-id"
DEFAULT_DEADLINE_SECONDS = 30.0

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_OK = 0
_CANCELED = 1
_DEADLINE_EXCEEDED = 4
# What OpenTelemetry counts as errors of a server: Unknown, DeadlineExceeded, Unimplemented,
# Internal, Unavailable and DataLoss.
_SERVER_FAULTS = frozenset({2, 4, 12, 13, 14, 15})

Unary: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
Streaming: TypeAlias = Callable[[Any, Context], AsyncIterator[Any]]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_log = structlog.stdlib.get_logger("persys_server.grpc")


class RequestBoundary(grpc.aio.ServerInterceptor):
    """Wraps the RPCs of the contract; health checks and reflection pass untouched.

    ``deadline_seconds`` holds for unary calls whose caller sets none.
    """

    def __init__(
        self,
        metrics: Metrics,
        phase: PhaseSwitch,
        clock: Clock,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        traces: Traces | None = None,
    ) -> None:
        self._metrics = metrics
        self._phase = phase
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._traces = traces or NoTraces()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of the call with the boundary around it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method not in METHODS:
            return handler
        shape: Any = handler
        ends = (_lenient(shape.request_deserializer), shape.response_serializer)
        if shape.unary_unary:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(method, shape.unary_unary), *ends
            )
        if shape.unary_stream:
            streaming = self._streaming(method, shape.unary_stream)
            return grpc.unary_stream_rpc_method_handler(streaming, *ends)
        return grpc.stream_stream_rpc_method_handler(
            self._unary(method, shape.stream_stream), *ends
        )

    def _unary(self, method: str, serve: Unary) -> Any:
        async def call(request: Any, context: Context) -> Any:
            rpc = self._begin(method, context)
            with rpc.span.current():
                try:
                    rpc.span.about(request)
                    _check_readable(request)
                    self._check_phase()
                    response = await self._in_time(serve(request, context), rpc)
                except asyncio.CancelledError:
                    self._count(rpc, _ended_by(context))
                    raise
                except Exception as error:
                    await self._fail(rpc, error)
                self._count(rpc, _OK)
                return response

        return call

    def _streaming(self, method: str, serve: Streaming) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            rpc = self._begin(method, context)
            try:
                _check_readable(request)
                self._check_phase()
                async with aclosing(serve(request, context)) as messages:  # type: ignore[type-var]
                    async for message in messages:
                        yield message
            except (asyncio.CancelledError, GeneratorExit):
                self._count(rpc, _ended_by(context))
                raise
            except Exception as error:
                await self._fail(rpc, error)
            self._count(rpc, _OK)

        return call

    def _begin(self, method: str, context: Context) -> _Rpc:
        headers = context.invocation_metadata() or ()
        span = self._traces.rpc(method, headers)
        rpc = _Rpc(method, context, _request_id(headers), self._clock.monotonic(), span)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=rpc.request_id, method=method)
        request_secrets.set(frozenset())
        context.set_trailing_metadata(rpc.trailing)
        return rpc

    def _check_phase(self) -> None:
        phase = self._phase.phase
        if phase is not Phase.SERVING:
            raise NotServingError(f"this replica is {phase}; ask again, or ask another one")

    async def _in_time(self, work: Awaitable[Any], rpc: _Rpc) -> Any:
        has_deadline = seconds_left(rpc.context) is not None
        limit = asyncio.timeout(None if has_deadline else self._deadline_seconds)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
        raise _TooLongError

    async def _fail(self, rpc: _Rpc, error: Exception) -> NoReturn:
        """Answer with the status that stands for ``error``."""
        # A stream may be closed in another context than it began in, so its span is current only
        # here, where lines are written.
        with rpc.span.current():
            answer = self._answer(rpc, error)
        self._count(rpc, answer.number)
        await rpc.context.abort(answer.code, answer.text, (*rpc.trailing, *answer.metadata))

    def _answer(self, rpc: _Rpc, error: Exception) -> Answer:
        if isinstance(error, _TooLongError):
            text = f"not done within {self._deadline_seconds:g} s; set a deadline of your own"
            return Answer(grpc.StatusCode.DEADLINE_EXCEEDED, text)
        answer = answer_of(error, request_secrets.get())
        if answer is not None:
            _log.info("request refused", code=answer.code.name, reason=answer.text)
            return answer
        self._metrics.counters[Metric.BUGS].labels(where="grpc").inc()
        _log.error("this is a bug: unexpected error in an RPC", exc_info=error)
        return internal_answer(rpc.request_id)

    def _count(self, rpc: _Rpc, code: int) -> None:
        if not rpc.counted:
            rpc.counted = True
            self._metrics.request_served(rpc.method, code, self._clock.monotonic() - rpc.began)
            rpc.span.end(code, failed=code in _SERVER_FAULTS)


class _TooLongError(Exception):
    """A call without a deadline of its own took too long."""


class _Unreadable:
    """Stands for a request whose bytes are no message of its type."""


def _lenient(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """``read``, so that garbage comes to the boundary; gRPC would log a traceback for it."""

    def lenient(raw: bytes) -> Any:
        try:
            return read(raw)
        except DecodeError:
            return _Unreadable()

    return lenient


def _check_readable(request: object) -> None:
    if isinstance(request, _Unreadable):
        text = "the bytes are no message of this type; the client needs this contract's messages"
        raise InvalidInputError([FieldError("request", text)])


@define
class _Rpc:
    method: str
    context: Context
    request_id: str
    began: float
    span: Served
    counted: bool = field(default=False, init=False)

    @property
    def trailing(self) -> tuple[tuple[str, str | bytes], ...]:
        return ((REQUEST_ID_KEY, self.request_id),)


def _request_id(headers: Headers) -> str:
    """The caller's, where it is a plain one; else a new one."""
    for key, value in headers:
        if key == REQUEST_ID_KEY and isinstance(value, str) and _REQUEST_ID.match(value):
            return value
    return uuid.uuid4().hex


def _ended_by(context: Context) -> int:
    """Who ended a cancelled call: its deadline, or its caller."""
    remaining = seconds_left(context)
    return _DEADLINE_EXCEEDED if remaining is not None and remaining <= 0 else _CANCELED

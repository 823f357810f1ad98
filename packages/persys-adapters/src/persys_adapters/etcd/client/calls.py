"""One call: which endpoint, how long, and what is done when it fails.

Decided here, for every method alike: a failure of the endpoint's sort is tried on another endpoint
within the call's total deadline, if the method is repeatable or the request was provably unsent; a
write that may have been applied is reported as ambiguous, never sent again. A token that etcd does
not know any more is renewed once. Streams are opened by the same rules; who reads them decides when
to open them anew.
"""

from __future__ import annotations

import asyncio
from typing import Generic

import grpc.aio
from attrs import frozen

from persys_adapters.etcd.client import rpc_pb2 as pb
from persys_adapters.etcd.client.auth import Tokens
from persys_adapters.etcd.client.config import EtcdConfig
from persys_adapters.etcd.client.endpoints import Endpoint, EndpointPool
from persys_adapters.etcd.client.errors import (
    AuthTokenError,
    DeadlineError,
    EtcdError,
    UnavailableError,
    ambiguous,
    error_of_exception,
)
from persys_adapters.etcd.client.wire import AUTHENTICATE, Answer, Method, Request

__all__ = ["Caller", "Stream", "cancellations", "overslept_by"]

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.4


def cancellations() -> int:
    """How often the running task was told to end.

    If that grew during a call, its end is meant for us, whatever the call raised. gRPC raises
    `CancelledError` also for a call whose channel was closed; and if a call fails in the moment in
    which its task is cancelled, it raises the failure and the cancellation is lost.
    """
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def overslept_by(seconds: float) -> float:
    """Sleep, and tell by how much longer than asked for: whether this process stood still, so that
    silence until now may be its own fault."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(seconds)
    return loop.time() - began - seconds


@frozen(eq=False)
class Stream(Generic[Request, Answer]):
    """An open stream and what it was opened with."""

    endpoint: Endpoint
    call: grpc.aio.StreamStreamCall[Request, Answer]
    token_number: int


class Caller:
    """Calls methods on the endpoints of a pool."""

    def __init__(self, config: EtcdConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._call_timeout = config.call_timeout.total_seconds()
        self._attempt_timeout = config.attempt_timeout.total_seconds()
        self._connect_timeout = config.connect_timeout.total_seconds()
        self._credentials = pb.AuthenticateRequest(name=config.user, password=config.password)
        self.tokens = Tokens(self._authenticate if config.user else None)
        self.pool = EndpointPool(config)

    async def unary(
        self,
        method: Method[Request, Answer],
        request: Request,
        *,
        timeout: float | None = None,
        at: Endpoint | None = None,
    ) -> Answer:
        """Call ``method``, within ``timeout`` seconds altogether; ``at`` one endpoint, it is asked
        once and may take all of the time. Raises `EtcdError` only."""
        deadline = self._loop.time() + (self._call_timeout if timeout is None else timeout)
        tried: set[str] = set()
        renewed, pause = False, _FIRST_PAUSE
        while True:
            endpoint = at or self.pool.choose(tried)
            token_number = self.tokens.number
            try:
                return await self._attempt(
                    endpoint, method, request, deadline, whole=at is not None
                )
            except AuthTokenError:
                if renewed or not self.tokens.renew(token_number):
                    raise
                renewed = True
                continue
            except UnavailableError as error:
                if error.maybe_applied:
                    raise ambiguous(error) from error
                tried.add(endpoint.address)
                all_tried = len(tried) >= len(self.pool)
                wait = pause if all_tried else 0.0
                if at is not None or self._loop.time() + wait >= deadline:
                    raise
            if all_tried:
                tried.clear()
                await asyncio.sleep(wait)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def open(self, method: Method[Request, Answer]) -> Stream[Request, Answer]:
        """Open a stream on the endpoint that is to be used now. Raises `EtcdError` only."""
        endpoint = self.pool.choose()
        token_number = self.tokens.number
        try:
            metadata = await self.tokens.metadata(method, self._call_timeout)
            if not endpoint.is_ready():
                await endpoint.connected(self._connect_timeout)
            call = endpoint.stream(method)(metadata=metadata)
        except Exception as failure:
            raise self._blame(endpoint, failure, is_write=False) from failure
        return Stream(endpoint, call, token_number)

    def ended(self, stream: Stream[Request, Answer], failure: BaseException) -> EtcdError:
        """Why a stream ended, as an error; its endpoint is left alone, its token renewed, if that
        is to blame."""
        error = self._blame(stream.endpoint, failure, is_write=False)
        if isinstance(error, AuthTokenError):
            self.tokens.renew(stream.token_number)
        return error

    async def aclose(self) -> None:
        """Close all connections."""
        await self.pool.aclose()

    async def _attempt(
        self,
        endpoint: Endpoint,
        method: Method[Request, Answer],
        request: Request,
        deadline: float,
        *,
        whole: bool,
    ) -> Answer:
        remaining = deadline - self._loop.time()
        if remaining <= 0:
            raise DeadlineError("no time was left to ask", endpoint=endpoint.address)
        sent, cancelled_before = False, cancellations()
        try:
            metadata = await self.tokens.metadata(method, remaining)
            if not endpoint.is_ready():
                await endpoint.connected(min(self._connect_timeout, remaining))
            sent = True
            timeout = remaining if whole else min(self._attempt_timeout, remaining)
            answer = await endpoint.unary(method)(request, timeout=timeout, metadata=metadata)
        except (Exception, asyncio.CancelledError) as failure:
            if cancellations() > cancelled_before:
                raise asyncio.CancelledError from failure
            is_write = sent and not method.repeatable
            raise self._blame(endpoint, failure, is_write=is_write) from failure
        self.pool.worked(endpoint)
        return answer

    def _blame(self, endpoint: Endpoint, failure: BaseException, *, is_write: bool) -> EtcdError:
        error = error_of_exception(failure, endpoint=endpoint.address, is_write=is_write)
        if isinstance(error, UnavailableError):
            self.pool.failed(endpoint)
        return error

    async def _authenticate(self, timeout: float) -> str:
        answer = await self.unary(AUTHENTICATE, self._credentials, timeout=timeout)
        return answer.token

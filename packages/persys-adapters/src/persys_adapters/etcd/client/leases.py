"""Keepalives: all renewals of a client over one stream.

Decided here: a renewal's deadline counts from when its request was sent, as etcd counts at the
earliest from then. The stream is opened when first needed. If it ends, or is silent for a moment
while an answer is due, it is opened on another endpoint and every open request is sent again there:
a renewal can be repeated at will. A lease's time to live is thus enough for several endpoints.

etcd answers in the order of the requests, so answers are matched by lease, first come first served.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from contextlib import suppress

import grpc.aio
from attrs import define, field

from persys_adapters.etcd.client import rpc_pb2 as pb
from persys_adapters.etcd.client.calls import Caller, Stream, cancellations, overslept_by
from persys_adapters.etcd.client.config import EtcdConfig
from persys_adapters.etcd.client.errors import (
    AuthTokenError,
    DeadlineError,
    EtcdError,
    LeaseLostError,
    UnavailableError,
)
from persys_adapters.etcd.client.wire import KEEP_ALIVE

__all__ = ["KeepAlives"]

_PAUSE = 0.05


@define(eq=False)
class _Renewal:
    """Someone waits for a lease's new deadline. ``sent_at`` is of the last sending."""

    lease_id: int
    deadline: asyncio.Future[float]
    sent_at: float = 0.0


@define(eq=False)
class _Line:
    """One open stream: what was sent on it and not answered yet, and when it last spoke."""

    stream: Stream[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
    heard_at: float
    waiting: dict[int, deque[_Renewal]] = field(factory=lambda: defaultdict(deque))
    open_count: int = 0
    has_spoken: bool = False
    is_hung: bool = False

    def sent(self, renewal: _Renewal, now: float) -> None:
        """An answer is due from now on."""
        if not self.open_count:
            self.heard_at = now
        renewal.sent_at = now
        self.waiting[renewal.lease_id].append(renewal)
        self.open_count += 1

    def answered(self, lease_id: int, now: float) -> _Renewal | None:
        """The renewal that an answer for ``lease_id`` belongs to."""
        self.heard_at, self.has_spoken = now, True
        queue = self.waiting.get(lease_id)
        if not queue:
            return None
        renewal = queue.popleft()
        if not queue:
            del self.waiting[lease_id]
        self.open_count -= 1
        return renewal


class KeepAlives:
    """Renews leases."""

    def __init__(self, caller: Caller, config: EtcdConfig) -> None:
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._timeout = config.call_timeout.total_seconds()
        self._silence = config.keep_alive_silence.total_seconds()
        self._unsent: deque[_Renewal] = deque()
        self._wanted = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._last_error: EtcdError | None = None

    async def renew(self, lease_id: int) -> float:
        """The new deadline of a lease. `LeaseLostError`, or another `EtcdError`."""
        if self._caller.pool.closed:
            raise UnavailableError("this client is closed")
        renewal = _Renewal(lease_id, self._loop.create_future())
        self._unsent.append(renewal)
        self._wanted.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        timer = self._loop.call_later(self._timeout, self._late, renewal)
        try:
            return await renewal.deadline
        finally:
            timer.cancel()
            renewal.deadline.cancel()

    async def aclose(self) -> None:
        """Close the stream; whoever waits is told that etcd is unavailable."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _late(self, renewal: _Renewal) -> None:
        if not renewal.deadline.done():
            cause = self._last_error
            error = DeadlineError(
                f"no answer to a keepalive within {self._timeout:.3g} s"
                + (f"; before that: {cause.details}" if cause else ""),
                endpoint=cause.endpoint if cause else "",
            )
            renewal.deadline.set_exception(error)

    async def _run(self) -> None:
        line: _Line | None = None
        try:
            while True:
                await self._wanted.wait()
                try:
                    stream = await self._caller.open(KEEP_ALIVE)
                except EtcdError as error:
                    self._opening_failed(error)
                    await asyncio.sleep(_PAUSE)
                    continue
                line = _Line(stream, self._loop.time())
                await self._serve(line)
                self._send_again(line)
                was_good, line = line.has_spoken, None
                await asyncio.sleep(0 if was_good else _PAUSE)
        finally:
            if line is not None:
                self._send_again(line)
            self._fail_all(UnavailableError("this client is closed"))

    def _opening_failed(self, error: EtcdError) -> None:
        self._last_error = error
        if not isinstance(error, UnavailableError):
            self._fail_all(error)

    def _fail_all(self, error: EtcdError) -> None:
        for renewal in self._unsent:
            if not renewal.deadline.done():
                renewal.deadline.set_exception(error)
        self._unsent.clear()
        self._wanted.clear()

    def _send_again(self, line: _Line) -> None:
        open_ones = [each for queue in line.waiting.values() for each in queue]
        self._unsent.extendleft(each for each in open_ones if not each.deadline.done())
        if self._unsent:
            self._wanted.set()

    async def _serve(self, line: _Line) -> None:
        """Send and receive until the stream ends, for whatever reason."""
        call = line.stream.call
        writing = asyncio.create_task(self._write(line))
        watching = asyncio.create_task(self._watch_over(line))
        failure: BaseException = UnavailableError("the stream of keepalives ended")
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                assert isinstance(answer, pb.LeaseKeepAliveResponse)
                self._take(line, answer)
        except (Exception, asyncio.CancelledError) as error:
            if cancellations():
                raise asyncio.CancelledError from error
            failure = error
        finally:
            for task in (writing, watching):
                task.cancel()
            call.cancel()
            await asyncio.gather(writing, watching, return_exceptions=True)
        if line.is_hung:
            failure = DeadlineError(f"no answer to a keepalive within {self._silence:.3g} s")
        self._line_failed(line, failure)

    def _line_failed(self, line: _Line, failure: BaseException) -> None:
        error = self._caller.ended(line.stream, failure)
        self._last_error = error
        if isinstance(error, (UnavailableError, AuthTokenError)):
            return
        self._send_again(line)
        line.waiting.clear()
        self._fail_all(error)

    def _take(self, line: _Line, answer: pb.LeaseKeepAliveResponse) -> None:
        self._caller.pool.worked(line.stream.endpoint)
        renewal = line.answered(answer.id, self._loop.time())
        if renewal is None or renewal.deadline.done():
            return
        if answer.ttl <= 0:
            error = LeaseLostError(f"lease {answer.id:x} is gone")
            renewal.deadline.set_exception(error)
        else:
            renewal.deadline.set_result(renewal.sent_at + answer.ttl)

    async def _write(self, line: _Line) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader is told why
            while True:
                await self._wanted.wait()
                while self._unsent:
                    renewal = self._unsent.popleft()
                    if renewal.deadline.done():
                        continue
                    line.sent(renewal, self._loop.time())
                    await line.stream.call.write(pb.LeaseKeepAliveRequest(id=renewal.lease_id))
                self._wanted.clear()

    async def _watch_over(self, line: _Line) -> None:
        while True:
            if await overslept_by(self._silence / 4) > self._silence / 2:
                line.heard_at = self._loop.time()  # an answer may wait to be read
            silent = self._loop.time() - line.heard_at
            if line.open_count and silent > self._silence:
                line.is_hung = True
                line.stream.call.cancel()
                return

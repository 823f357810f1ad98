"""A watch that goes on: resumed on any endpoint, nothing lost, nothing twice.

Decided here: where it resumes (after the last revision that was delivered, never at what a header
says), what makes it open a new stream (an end, an error, silence), what ends it for good (the asked
past is compacted or never was; the user may not read), and how far it reads ahead of its consumer.

A watch that hears nothing cannot be told from one on a dead line. So after half of the idle timeout
it asks for progress, and if nothing at all comes until the whole of it, it is opened anew. Progress
answers prove that the line is alive and nothing else: etcd may send them ahead of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import grpc.aio
from attrs import define

from persys_adapters.etcd.client import rpc_pb2 as pb
from persys_adapters.etcd.client.calls import Caller, Stream, cancellations, overslept_by
from persys_adapters.etcd.client.errors import (
    AuthTokenError,
    CompactedError,
    DeadlineError,
    EtcdError,
    PermissionDeniedError,
    UnavailableError,
    error_of_exception,
    error_of_status,
)
from persys_adapters.etcd.client.regroup import Regrouper
from persys_adapters.etcd.client.values import WatchCompacted, WatchEvent, WatchRewound
from persys_adapters.etcd.client.wire import RANGE, WATCH, event_of

__all__ = ["Watch"]

_READ_AHEAD = 1024
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

_Line: TypeAlias = Stream[pb.WatchRequest, pb.WatchResponse]


@define
class _Ended:
    """The last item: nothing comes after it. ``error`` is raised, if there is one."""

    error: EtcdError | None = None


class Watch:
    """An async iterator over `WatchBatch`, and at most one `WatchCompacted` or `WatchRewound`.

    It begins with its creation, in the background. ``last_heard_at`` is the instant of the loop's
    clock at which etcd last said anything on it, minus infinity before that: the age of a cache
    that it feeds. Close it with `aclose` when it is not read to its end. Iterating raises
    `PermissionDeniedError` or `AuthenticationError`; whatever may pass is retried for ever.
    """

    def __init__(
        self,
        caller: Caller,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        *,
        idle_timeout: float,
    ) -> None:
        self._caller = caller
        self._key, self._range_end = key, range_end
        self._idle_timeout = idle_timeout
        self._loop = asyncio.get_running_loop()
        self._regroup = Regrouper(start_revision)
        self._items: asyncio.Queue[WatchEvent | _Ended] = asyncio.Queue(_READ_AHEAD)
        self._cluster_id = 0
        self._denied = False
        self._is_reading = True
        self._is_over = False
        self._quiet_since = self._loop.time()
        self._pause = _FIRST_PAUSE
        self.last_heard_at = float("-inf")
        self._pump = asyncio.create_task(self._run())

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchEvent:
        if self._is_over:
            raise StopAsyncIteration
        item = await self._items.get()
        if not isinstance(item, _Ended):
            return item
        self._is_over = True
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End it; what was not taken yet is dropped."""
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        while not self._items.empty():
            self._items.get_nowait()
        self._items.put_nowait(_Ended())

    @property
    def cluster_id(self) -> int:
        """The cluster that it watches; 0 before it began."""
        return self._cluster_id

    @property
    def next_revision(self) -> int:
        """Everything before this revision was delivered or is about to be; 0 before it began."""
        return self._regroup.next_revision

    def on_end(self, told: Callable[[Watch], None]) -> None:
        """Call ``told`` when nothing more will be read."""
        self._pump.add_done_callback(lambda _: told(self))

    async def _run(self) -> None:
        last = _Ended()
        try:
            while not await self._one_line():
                await asyncio.sleep(self._pause)
                self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        except EtcdError as error:
            last = _Ended(error)
        except Exception as error:
            last = _Ended(error_of_exception(error))
        await self._items.put(last)

    async def _one_line(self) -> bool:
        """Read one stream to its end; whether the watch is over with it."""
        self._regroup.line_lost()
        try:
            line = await self._caller.open(WATCH)
        except UnavailableError:
            return False
        self._quiet_since = self._loop.time()
        watchdog = asyncio.create_task(self._watch_over(line))
        failure: BaseException = UnavailableError("the watch's stream ended")
        try:
            await line.call.write(self._request())
            while (answer := await line.call.read()) is not grpc.aio.EOF:
                assert isinstance(answer, pb.WatchResponse)
                if await self._take(line, answer):
                    return True
        except (Exception, asyncio.CancelledError) as error:
            if cancellations():
                raise asyncio.CancelledError from error
            failure = DeadlineError("the watch heard nothing") if watchdog.done() else error
        finally:
            watchdog.cancel()
            line.call.cancel()
            await asyncio.gather(watchdog, return_exceptions=True)
        self._judge(line, failure)
        return False

    def _judge(self, line: _Line, failure: BaseException) -> None:
        """Raise what ends the watch. A token that is not known any more may be told as a denial, so
        a denial is believed the second time."""
        error = self._caller.ended(line, failure)
        match error:
            case UnavailableError() | AuthTokenError():
                return
            case PermissionDeniedError() if not self._denied:
                self._denied = True
                if self._caller.tokens.renew(line.token_number):
                    return
        raise error

    def _request(self) -> pb.WatchRequest:
        return pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=self._key,
                range_end=self._range_end,
                start_revision=self._regroup.next_revision,
                progress_notify=True,
            )
        )

    async def _take(self, line: _Line, answer: pb.WatchResponse) -> bool:
        """Deliver what came; whether the watch is over."""
        self._quiet_since = self._loop.time()
        if answer.compact_revision:
            await self._deliver(WatchCompacted(answer.compact_revision))
            return True
        if answer.canceled:
            reason = answer.cancel_reason or "etcd cancelled the watch"
            error = error_of_status(None, reason, endpoint=line.endpoint.address)
            if isinstance(error, CompactedError):
                await self._deliver(WatchCompacted(error.compact_revision))
                return True
            raise error
        self.last_heard_at = self._quiet_since
        if answer.created:
            return await self._created(line, answer.header)
        if answer.events:
            events = [event_of(event) for event in answer.events]
            for batch in self._regroup.feed(events, answer.fragment):
                await self._deliver(batch)
        return False

    async def _created(self, line: _Line, header: pb.ResponseHeader) -> bool:
        self._pause, self._denied = _FIRST_PAUSE, False
        self._caller.pool.worked(line.endpoint)
        if not self._regroup.next_revision:
            self._regroup.begin(header.revision + 1)
        is_other = bool(self._cluster_id) and header.cluster_id != self._cluster_id
        self._cluster_id = self._cluster_id or header.cluster_id
        revision = header.revision
        if not is_other and revision + 1 < self._regroup.next_revision:
            # The member may only lag behind; the whole cluster cannot.
            question = pb.RangeRequest(key=self._key, count_only=True)
            revision = (await self._caller.unary(RANGE, question)).header.revision
        if is_other or revision + 1 < self._regroup.next_revision:
            await self._deliver(WatchRewound(revision, header.cluster_id))
            return True
        return False

    async def _deliver(self, item: WatchEvent) -> None:
        try:
            self._items.put_nowait(item)
        except asyncio.QueueFull:
            # The consumer is behind. The line is silent because nobody reads it.
            self._is_reading = False
            await self._items.put(item)
            self._quiet_since = self._loop.time()
            self._is_reading = True

    async def _watch_over(self, line: _Line) -> None:
        """Returns, with the call cancelled, when the line was silent for too long."""
        half, asked_at = self._idle_timeout / 2, float("-inf")
        asking: asyncio.Task[None] | None = None
        try:
            while True:
                overslept = await overslept_by(self._idle_timeout / 4)
                now = self._loop.time()
                if not self._is_reading or now - self._quiet_since < half:
                    continue
                if asked_at < self._quiet_since:
                    asked_at = now
                    asking = asyncio.create_task(_ask(line))
                elif overslept > half:
                    asked_at = now  # an answer may wait to be read
                elif now - asked_at >= half:
                    break
        finally:
            if asking is not None:
                asking.cancel()
        line.call.cancel()


async def _ask(line: _Line) -> None:
    request = pb.WatchRequest(progress_request=pb.WatchProgressRequest())
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader is told why
        await line.call.write(request)

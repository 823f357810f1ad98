"""Connections to the members: one channel for each endpoint.

Decided here: which endpoint is used (the same as before until it fails, then the next one that did
not fail lately), for how long a failed one is left alone, what a channel is told, and when channels
are replaced (the TLS files changed). What a failure means is decided in ``calls``.

A stopped process still accepts connections, so a call is only begun on a channel that is ready:
whatever goes wrong before that is provably unsent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import grpc
import grpc.aio

from persys_adapters.etcd.client.config import EtcdConfig, TlsFiles
from persys_adapters.etcd.client.errors import UnavailableError
from persys_adapters.etcd.client.tls import FileCredentials
from persys_adapters.etcd.client.wire import Answer, Method, Request

__all__ = ["Endpoint", "EndpointPool"]

_FIRST_BACKOFF = 0.5
_LONGEST_BACKOFF = 10.0
_CLOSING_GRACE = 10.0

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.enable_http_proxy", 0),
    # Sending again is decided here, where it is known what may be.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    # Closing a channel closes its connection: without this, connections are shared process-wide.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # etcd refuses pings that come more often than every 5 s. Without a ping timeout of its own a
    # frozen server was noticed only after 68 s, with it after 11 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # A listing may be long, and a resumed watch gets its whole backlog in one message.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)

_READY = grpc.ChannelConnectivity.READY
_SETTLED = {_READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN}


class Endpoint:
    """One member's channel and its standing; ``bad_until`` is an instant of the loop's clock."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self.address = address
        self.bad_until = 0.0
        self.failures = 0
        self.channel = channel
        self._unary: dict[Any, Any] = {}
        self._connecting: asyncio.Task[None] | None = None

    def unary(
        self, method: Method[Request, Answer]
    ) -> grpc.aio.UnaryUnaryMultiCallable[Request, Answer]:
        """What calls ``method`` on this endpoint."""
        found: grpc.aio.UnaryUnaryMultiCallable[Request, Answer] | None = self._unary.get(method)
        if found is None:
            found = self.channel.unary_unary(
                method.path, request_serializer=method.encode, response_deserializer=method.decode
            )
            self._unary[method] = found
        return found

    def stream(
        self, method: Method[Request, Answer]
    ) -> grpc.aio.StreamStreamMultiCallable[Request, Answer]:
        """What opens a stream of ``method`` on this endpoint."""
        return self.channel.stream_stream(
            method.path, request_serializer=method.encode, response_deserializer=method.decode
        )

    def is_ready(self) -> bool:
        """Whether a call may be begun now; if not, it begins to connect."""
        return self.channel.get_state(try_to_connect=True) is _READY

    async def connected(self, timeout: float) -> None:
        """Wait until a call may be begun: the channel is ready, or is known to have failed, so
        that the call tells at once why. `UnavailableError`: neither within ``timeout`` seconds."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(_settle(self.channel))
        done, _ = await asyncio.wait({self._connecting}, timeout=timeout)
        if not done:
            text = f"no connection within {timeout:.3g} s"
            raise UnavailableError(text, endpoint=self.address)

    def replace(self, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        """Use another channel from now on; the one that was used."""
        old, self.channel = self.channel, channel
        self._unary.clear()
        self._stop_connecting()
        return old

    async def aclose(self) -> None:
        """Close the channel at once."""
        self._stop_connecting()
        await self.channel.close(None)

    def _stop_connecting(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None


async def _retire(channel: grpc.aio.Channel) -> None:
    """Let what is under way on a channel end, for a while; at once if this is cancelled."""
    try:
        await channel.close(_CLOSING_GRACE)
    finally:
        await channel.close(None)


async def _settle(channel: grpc.aio.Channel) -> None:
    state = channel.get_state(try_to_connect=True)
    while state not in _SETTLED:
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


class EndpointPool:
    """The endpoints of a client, and which of them is used."""

    def __init__(self, config: EtcdConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._server_name = config.tls.server_name if config.tls else ""
        self._credentials: FileCredentials | None = None
        if config.secure:
            interval = config.tls_check_interval.total_seconds()
            files = config.tls or TlsFiles()
            self._credentials = FileCredentials(files, interval, self._loop.time)
        self._endpoints = [Endpoint(each, self._open(each)) for each in config.addresses]
        self._current = 0
        self._closing: set[asyncio.Task[None]] = set()
        self.closed = False

    def __len__(self) -> int:
        return len(self._endpoints)

    def choose(self, tried: Collection[str] = ()) -> Endpoint:
        """The endpoint to use: the present one while it works, else the next that was not
        ``tried`` and did not fail lately, else the one that failed longest ago."""
        self._follow_files()
        current = self._endpoints[self._current]
        if not current.failures and current.address not in tried:
            return current
        count, now = len(self._endpoints), self._loop.time()
        order = [(self._current + step) % count for step in range(count)]
        fresh = [each for each in order if self._endpoints[each].address not in tried] or order
        good = [each for each in fresh if self._endpoints[each].bad_until <= now]
        self._current = (
            good[0] if good else min(fresh, key=lambda each: self._endpoints[each].bad_until)
        )
        return self._endpoints[self._current]

    def named(self, endpoint: str) -> Endpoint:
        """The endpoint with this address. `ValueError`: there is none."""
        self._follow_files()
        for each in self._endpoints:
            if each.address == endpoint:
                return each
        known = ", ".join(each.address for each in self._endpoints)
        raise ValueError(f"{endpoint!r} is none of this client's endpoints: {known}")

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(each.address for each in self._endpoints)

    def failed(self, endpoint: Endpoint) -> None:
        """Leave it alone for a while, longer each time; calls that fail together count once."""
        now = self._loop.time()
        if now >= endpoint.bad_until:
            backoff = min(_FIRST_BACKOFF * 2**endpoint.failures, _LONGEST_BACKOFF)
            endpoint.failures = min(endpoint.failures + 1, 10)
            endpoint.bad_until = now + backoff

    def worked(self, endpoint: Endpoint) -> None:
        """It answered."""
        if endpoint.failures:
            endpoint.failures, endpoint.bad_until = 0, 0.0

    async def aclose(self) -> None:
        """Close every channel at once; calls on them end as unavailable."""
        self.closed = True
        for task in self._closing:
            task.cancel()
        await asyncio.gather(
            *(each.aclose() for each in self._endpoints),
            *self._closing,
            return_exceptions=True,
        )

    def _open(self, address: str) -> grpc.aio.Channel:
        options: list[tuple[str, int | str]] = list(_OPTIONS)
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=options)
        if self._server_name:
            options.append(("grpc.ssl_target_name_override", self._server_name))
        return grpc.aio.secure_channel(address, self._credentials.current, options=options)

    def _follow_files(self) -> None:
        if self.closed:
            raise UnavailableError("this client is closed")
        if self._credentials is None or not self._credentials.renewed():
            return
        for endpoint in self._endpoints:
            old = endpoint.replace(self._open(endpoint.address))
            task = asyncio.create_task(_retire(old))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

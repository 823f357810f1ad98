"""Connections to agents: one channel per node, opened when first used.

Decided here: when a channel is replaced (the node's endpoint changed, the certificates changed,
or nothing has come back over it for several calls) and how many calls may be on their way to one
node. What is called and what an answer means is decided elsewhere.

The settings are ones that no peer objects to. There are no keepalive pings: a default Go server
answers them with ENHANCE_YOUR_CALM, and since every call has a deadline a dead connection is
noticed by silence instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import grpc
import grpc.aio
from attrs import define, field

from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_proto.aio import agent_service_stub

if TYPE_CHECKING:
    from persys_proto.agent.v1.agent_pb2_grpc import AgentServiceAsyncStub

__all__ = ["ChannelOpener", "ChannelPool", "Lane", "plain_opener", "tls_opener"]

ChannelOpener: TypeAlias = Callable[[str], grpc.aio.Channel]
"""Opens a channel to ``host:port``."""

_CALLS_PER_NODE = 8
_SILENT_CALLS = 3
_CLOSING_GRACE = 10.0
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_OPTIONS: tuple[tuple[str, int], ...] = (
    # A proxy of the environment is not for machines of the cluster.
    ("grpc.enable_http_proxy", 0),
    # Repeating a call is the reconciler's decision, made with a committed intent.
    ("grpc.enable_retries", 0),
    # A node that came back is tried again within seconds, not within two minutes.
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # Closing a channel closes its connection: without this, connections are shared process-wide.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.service_config_disable_resolution", 1),
    # A listing carries the whole stderr of every crashed container.
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
)


def plain_opener() -> ChannelOpener:
    """Channels without TLS."""
    return lambda endpoint: grpc.aio.insecure_channel(endpoint, options=_OPTIONS)


def tls_opener(credentials: grpc.ChannelCredentials) -> ChannelOpener:
    """Channels with mutual TLS; the agent's certificate must name the host that is dialled."""
    return lambda endpoint: grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)


@define(eq=False)
class Lane:
    """What is kept per node. ``slots`` bounds the calls on their way to it."""

    endpoint: str
    slots: asyncio.Semaphore
    channel: grpc.aio.Channel | None = None
    stub: AgentServiceAsyncStub | None = None
    silent_calls: int = field(default=0)

    def answered(self) -> None:
        """Something came back: the connection works."""
        self.silent_calls = 0


class ChannelPool:
    """Lanes by node. ``open_channels`` counts channels that are not closed yet."""

    def __init__(self, opener: ChannelOpener, calls_per_node: int = _CALLS_PER_NODE) -> None:
        self._opener = opener
        self._calls_per_node = calls_per_node
        self._lanes: dict[NodeId, Lane] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.open_channels = 0

    def lane(self, node: Node) -> Lane:
        """The lane to ``node``; its channel is replaced if the node listens elsewhere now."""
        lane = self._lanes.get(node.id)
        if lane is None:
            lane = Lane(node.endpoint, asyncio.Semaphore(self._calls_per_node))
            self._lanes[node.id] = lane
        elif lane.endpoint != node.endpoint:
            self._retire(lane)
            lane.endpoint = node.endpoint
        return lane

    def stub(self, lane: Lane) -> AgentServiceAsyncStub:
        """A client on the lane's channel, which is opened if there is none."""
        if lane.stub is None:
            lane.channel = self._opener(lane.endpoint)
            self.open_channels += 1
            lane.stub = agent_service_stub(lane.channel)
        return lane.stub

    def was_silent(self, lane: Lane) -> None:
        """A call met its deadline; after several in a row the connection is given up."""
        lane.silent_calls += 1
        if lane.silent_calls >= _SILENT_CALLS:
            self._retire(lane)

    def reopen(self, opener: ChannelOpener) -> None:
        """Use new credentials: every channel is replaced, and calls on the old ones may end."""
        self._opener = opener
        for lane in self._lanes.values():
            self._retire(lane)

    async def forget(self, node_id: NodeId) -> None:
        """Close a node's channel at once; calls on it end as unreachable."""
        lane = self._lanes.pop(node_id, None)
        if lane is not None and lane.channel is not None:
            await self._close(lane.channel, None)

    async def aclose(self) -> None:
        """Close every channel at once."""
        lanes, self._lanes = self._lanes, {}
        channels = [lane.channel for lane in lanes.values() if lane.channel is not None]
        for task in self._closing:
            task.cancel()
        await asyncio.gather(
            *(self._close(channel, None) for channel in channels),
            *self._closing,
            return_exceptions=True,
        )

    def _retire(self, lane: Lane) -> None:
        channel, lane.channel, lane.stub, lane.silent_calls = lane.channel, None, None, 0
        if channel is not None:
            task = asyncio.get_running_loop().create_task(self._close(channel, _CLOSING_GRACE))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, channel: grpc.aio.Channel, grace: float | None) -> None:
        try:
            await channel.close(grace)
        finally:
            self.open_channels -= 1

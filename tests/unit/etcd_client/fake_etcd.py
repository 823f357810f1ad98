"""A server in this process that speaks etcd's methods and fails as it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import Message

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_adapters.etcd.client import rpc_pb2 as pb

__all__ = ["Context", "FakeEtcd", "client_of", "fake_etcd", "header", "silence"]

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Unary: TypeAlias = Callable[[Any, Context], Awaitable[Message]]
Streaming: TypeAlias = Callable[[AsyncIterator[Any], Context], Any]

_REQUESTS: dict[str, type[Message]] = {
    "KV/Range": pb.RangeRequest,
    "KV/Txn": pb.TxnRequest,
    "KV/DeleteRange": pb.DeleteRangeRequest,
    "Lease/LeaseGrant": pb.LeaseGrantRequest,
    "Lease/LeaseRevoke": pb.LeaseRevokeRequest,
    "Lease/LeaseTimeToLive": pb.LeaseTimeToLiveRequest,
    "Maintenance/Status": pb.StatusRequest,
    "Auth/Authenticate": pb.AuthenticateRequest,
}
_STREAMED: dict[str, type[Message]] = {
    "Watch/Watch": pb.WatchRequest,
    "Lease/LeaseKeepAlive": pb.LeaseKeepAliveRequest,
}


def header(revision: int, cluster_id: int = 1) -> pb.ResponseHeader:
    """A response's header."""
    return pb.ResponseHeader(revision=revision, cluster_id=cluster_id)


async def silence(*_: Any) -> Any:
    """Never answer."""
    await asyncio.Event().wait()


class FakeEtcd(grpc.GenericRpcHandler):
    """``unary`` and ``streams`` say by method how it answers; ``calls`` has what was asked."""

    def __init__(self) -> None:
        self.unary: dict[str, Unary] = {}
        self.streams: dict[str, Streaming] = {}
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.endpoint = ""

    def count(self, method: str) -> int:
        """How often ``method`` was called."""
        return sum(name == method for name, _ in self.calls)

    def metadata(self, method: str) -> list[dict[str, str]]:
        """The metadata of every call of ``method``."""
        return [each for name, each in self.calls if name == method]

    def fails(self, method: str, code: grpc.StatusCode, details: str) -> None:
        """From now on ``method`` fails with this status."""

        async def fail(_: Any, context: Context) -> Message:
            await context.abort(code, details)

        async def fail_streaming(_: Any, context: Context) -> None:
            await context.abort(code, details)

        self.unary[method] = fail
        self.streams[method] = fail_streaming

    def answers(self, method: str, answer: Message) -> None:
        """From now on ``method`` has this answer."""

        async def say(_: Any, __: Context) -> Message:
            return answer

        self.unary[method] = say

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call, as gRPC asks for it."""
        name = handler_call_details.method.removeprefix("/etcdserverpb.")
        metadata = {key: str(value) for key, value in handler_call_details.invocation_metadata}
        self.calls.append((name, metadata))
        if name in _STREAMED:
            return grpc.stream_stream_rpc_method_handler(
                self.streams[name], _STREAMED[name].FromString, _encode
            )
        return grpc.unary_unary_rpc_method_handler(
            self.unary[name], _REQUESTS[name].FromString, _encode
        )


def _encode(message: Message) -> bytes:
    return message.SerializeToString()


@asynccontextmanager
async def fake_etcd() -> AsyncIterator[FakeEtcd]:
    """A fake that listens on a free port."""
    fake = FakeEtcd()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((fake,))
    fake.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield fake
    finally:
        await server.stop(None)


@asynccontextmanager
async def client_of(*fakes: FakeEtcd, **changed: Any) -> AsyncIterator[EtcdClient]:
    """A client of these endpoints."""
    config = EtcdConfig(tuple(fake.endpoint for fake in fakes), **changed)
    async with EtcdClient(config) as client:
        yield client

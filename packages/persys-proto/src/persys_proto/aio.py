"""Typed stubs for asyncio channels.

The generated stub classes serve blocking and asyncio channels alike, and their
type stubs assume a blocking one. The asyncio types exist for the checker only,
so the one cast that this takes stands here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from persys_proto.agent.v1 import agent_pb2_grpc
from persys_proto.control.v1 import control_pb2_grpc

if TYPE_CHECKING:
    import grpc.aio

__all__ = ["agent_control_stub", "agent_service_stub"]


def agent_control_stub(channel: grpc.aio.Channel) -> control_pb2_grpc.AgentControlAsyncStub:
    """A client of the scheduler; calls return awaitables or async iterators."""
    return cast(
        "control_pb2_grpc.AgentControlAsyncStub", control_pb2_grpc.AgentControlStub(channel)
    )


def agent_service_stub(channel: grpc.aio.Channel) -> agent_pb2_grpc.AgentServiceAsyncStub:
    """A client of one compute agent."""
    return cast("agent_pb2_grpc.AgentServiceAsyncStub", agent_pb2_grpc.AgentServiceStub(channel))

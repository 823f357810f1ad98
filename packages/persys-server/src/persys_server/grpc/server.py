"""The gRPC server: what it listens on, its limits, health and reflection.

Decided here: transport options. A port that someone else has is an error at once, not a shared
socket. TLS is not in this release; see ``main`` for what that demands of the command line.
"""

from __future__ import annotations

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from persys_proto.control.v1 import control_pb2, control_pb2_grpc
from persys_server.grpc.interceptors import RequestBoundary
from persys_server.grpc.mapping.limits import MAX_MESSAGE_BYTES
from persys_server.grpc.servicer import ControlServicer

__all__ = ["SERVICE_NAME", "GrpcServer", "PortTakenError"]

SERVICE_NAME = control_pb2.DESCRIPTOR.services_by_name["AgentControl"].full_name
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    # A watcher behind a dead connection is noticed.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class PortTakenError(Exception):
    """A server cannot listen where it was told to; the text says where and what to do."""

    def __init__(self, what: str, host: str, port: int, option: str) -> None:
        super().__init__(
            f"{what} cannot listen on {host}:{port}: another process has the port or the address"
            f" is not this machine's. Stop the other one, or choose another port ({option})"
        )


class GrpcServer:
    """One listening server. ``port`` is the bound port, also where 0 was asked for."""

    def __init__(self, servicer: ControlServicer, boundary: RequestBoundary) -> None:
        self._server = grpc.aio.server(interceptors=(boundary,), options=_OPTIONS)
        self._health = health.aio.HealthServicer()
        self.port = 0
        control_pb2_grpc.add_AgentControlServicer_to_server(servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self, host: str, port: int) -> None:
        """Listen, and say NOT_SERVING until ``set_serving``; ``PortTakenError``."""
        await self.set_serving(False)
        address = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_insecure_port(f"{address}:{port}")
        except RuntimeError as error:
            raise PortTakenError("gRPC", host, port, "GRPC_PORT or --grpc-port") from error
        if not self.port:
            raise PortTakenError("gRPC", host, port, "GRPC_PORT or --grpc-port")
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        """What health checks are told, of the server and of the service."""
        for name in ("", SERVICE_NAME):
            await self._health.set(name, _SERVING if serving else _NOT_SERVING)

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing new, let calls in flight end, and cut them off after the grace."""
        await self._server.stop(grace_seconds)

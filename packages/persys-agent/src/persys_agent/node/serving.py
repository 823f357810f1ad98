"""``serve``: a node that runs: its server, its tasks, its loops, and its reports.

Decided here: the order of starting and stopping. Tasks go on before anybody can ask, the scheduler
is told last. Stopping takes no new call, lets go of the scheduler, and leaves all work running;
tasks in the middle of something are carried on by the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import grpc.aio
from attrs import frozen

from persys_agent.engine.backends import Backends
from persys_agent.node.assembly import Assembly
from persys_agent.node.loops import Loops
from persys_agent.reporting.reporter import Reporter, SchedulerCalls
from persys_core.model.errors import PersysError
from persys_core.model.ids import NodeId
from persys_proto.agent.v1 import agent_pb2_grpc

__all__ = ["Listening", "PortTakenError", "Served", "serve"]

_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.max_send_message_length", 64 * 1024 * 1024))
_STOP_GRACE_SECONDS = 1.0


class PortTakenError(PersysError):
    """The node cannot listen where it should."""


@frozen
class Listening:
    """Where to listen; port 0 chooses one. ``interceptors`` see every call before it is served:
    the place for whoever decides which callers may do what."""

    host: str = "127.0.0.1"
    port: int = 0
    credentials: grpc.ServerCredentials | None = None
    interceptors: Sequence[grpc.aio.ServerInterceptor] = ()


@frozen
class Served:
    """A node that runs. ``reporter`` is ``None`` where it tells nobody."""

    node_id: NodeId
    endpoint: str
    port: int
    loops: Loops
    reporter: Reporter | None


@asynccontextmanager
async def serve(
    node: Assembly,
    backends: Backends,
    listening: Listening,
    *,
    scheduler: SchedulerCalls | None = None,
    endpoint: Callable[[int], str] = lambda port: f"127.0.0.1:{port}",
    reconciles: bool = True,
) -> AsyncIterator[Served]:
    """Run a node until the block ends. Raises ``PortTakenError``.

    ``endpoint`` makes of the bound port what the scheduler is told.
    """
    loops = node.loops
    async with AsyncExitStack() as stack:
        for runtime in backends.runtimes.values():
            stack.push_async_callback(runtime.aclose)
        await node.detector.detect()
        node.works.queue.start()
        stack.push_async_callback(node.works.queue.stop)
        server, port = _bound(listening)
        agent_pb2_grpc.add_AgentServiceServicer_to_server(node.service, server)
        await server.start()
        stack.push_async_callback(server.stop, _STOP_GRACE_SECONDS)
        node.presence.endpoint = endpoint(port)
        node.presence.claims_node_id = listening.port != 0
        reporter = node.reporter(scheduler) if scheduler is not None else None
        await stack.enter_async_context(_running(node, loops, reporter, reconciles=reconciles))
        yield Served(node.presence.node_id, node.presence.endpoint, port, loops, reporter)


@asynccontextmanager
async def _running(
    node: Assembly, loops: Loops, reporter: Reporter | None, *, reconciles: bool
) -> AsyncIterator[None]:
    wanted = [
        ("detection", node.detector.run),
        ("usage", node.collector.run),
    ]
    if reconciles:
        wanted.append(("local loop", node.loop.run))
    if reporter is not None:
        wanted.append(("fence", lambda: node.fence.run(node.works)))
        wanted.append(("reports", reporter.run))
    running = [asyncio.create_task(loops.keep(name, loop), name=name) for name, loop in wanted]
    try:
        yield
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _bound(listening: Listening) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(options=_OPTIONS, interceptors=tuple(listening.interceptors))
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    address = f"{host}:{listening.port}"
    try:
        if listening.credentials is None:
            return server, server.add_insecure_port(address)
        return server, server.add_secure_port(address, listening.credentials)
    except RuntimeError as error:
        raise PortTakenError(
            f"cannot listen on {address}: the port is in use or the host is not one of this"
            " machine's addresses; choose another grpc_addr or grpc_port"
        ) from error

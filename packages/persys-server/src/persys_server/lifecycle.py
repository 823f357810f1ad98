"""The life of one replica: opened in order, served, and closed in the opposite order.

Decided here: that order. At the end health says NOT_SERVING first, then the loops end and the
lead is given up, then gRPC lets calls in flight end, then HTTP, then the adapters. Probes can
therefore watch the whole way down.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import TypeAlias

import structlog
from attrs import frozen

from persys_core.control.config import SchedulerPorts
from persys_core.ports.observer import Observer
from persys_server.collector import loading
from persys_server.container import Container, SchedulerFactory
from persys_server.observability.metrics import Metrics, PrometheusObserver
from persys_server.observability.tracing import open_traces
from persys_server.phase import PhaseSwitch
from persys_server.scheduler_config import scheduler_config
from persys_server.settings import Settings

__all__ = ["OpenPorts", "Served", "run_until", "run_until_signal", "serving"]

OpenPorts: TypeAlias = Callable[[Settings, Observer, AsyncExitStack], Awaitable[SchedulerPorts]]

_GRACE_SECONDS = 10.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = structlog.stdlib.get_logger("persys_server.lifecycle")


@frozen
class Served:
    """What is being served, and where."""

    grpc_port: int
    metrics_port: int
    instance_id: str
    phase: PhaseSwitch


@asynccontextmanager
async def serving(
    settings: Settings, open_ports: OpenPorts, scheduler_factory: SchedulerFactory
) -> AsyncIterator[Served]:
    """One replica that serves for as long as the context is open.

    Raises ``PortTakenError``, and what the adapters raise; whatever was open by then is closed.
    """
    metrics, phase = Metrics(), PhaseSwitch()
    async with AsyncExitStack() as stack:
        traces = open_traces(settings)
        stack.push_async_callback(traces.aclose)
        ports = await open_ports(settings, PrometheusObserver(metrics, traces.tracer), stack)
        container = Container(
            settings=settings,
            config=scheduler_config(settings),
            ports=ports,
            scheduler_factory=scheduler_factory,
            metrics=metrics,
            phase=phase,
            traces=traces,
        )
        container.check_dependencies()
        served = await _start(container, settings, stack)
        _log.info("serving", grpc_port=served.grpc_port, metrics_port=served.metrics_port)
        yield served
        _log.info("stopping")


async def _start(container: Container, settings: Settings, stack: AsyncExitStack) -> Served:
    http, server = container.http_server(), container.grpc_server()
    scheduler, phase = container.scheduler(), container.phase()
    await http.start(settings.grpc_addr, settings.metrics_port)
    stack.push_async_callback(http.stop)
    await server.start(settings.grpc_addr, settings.grpc_port)
    stack.push_async_callback(server.stop, _GRACE_SECONDS)
    lag = asyncio.ensure_future(container.lag().run())
    stack.callback(lag.cancel)
    stack.push_async_callback(scheduler.stop)
    with loading():
        await scheduler.start()

    async def step_down() -> None:
        phase.stop()
        await server.set_serving(False)

    stack.push_async_callback(step_down)
    phase.serve()
    await server.set_serving(True)
    instance_id = container.ports().membership.instance_id
    return Served(server.port, http.port, instance_id, phase)


async def run_until_signal(
    settings: Settings, open_ports: OpenPorts, scheduler_factory: SchedulerFactory
) -> None:
    """Serve until SIGTERM or SIGINT, also where one comes during the start.

    A second signal ends the process as usual.
    """
    ended = asyncio.Event()
    with _signals_set(ended):
        await run_until(ended, settings, open_ports, scheduler_factory)


async def run_until(
    ended: asyncio.Event,
    settings: Settings,
    open_ports: OpenPorts,
    scheduler_factory: SchedulerFactory,
) -> None:
    """Serve until ``ended`` is set; a start that is not done by then is given up."""

    async def serve() -> None:
        async with serving(settings, open_ports, scheduler_factory):
            started.set()
            await ended.wait()

    started = asyncio.Event()
    life, end = asyncio.ensure_future(serve()), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait((life, end), return_when=asyncio.FIRST_COMPLETED)
        if not life.done() and not started.is_set():
            life.cancel()
        with suppress(asyncio.CancelledError):
            await life
    finally:
        end.cancel()


@contextmanager
def _signals_set(ended: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def forget() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def end() -> None:
        ended.set()
        forget()

    for number in _SIGNALS:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        forget()

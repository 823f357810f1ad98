"""Which object gets which: the one file that knows dependency-injector.

Decided here: the wiring of one replica. Adapters are opened by ``lifecycle`` and handed in ready,
since the library would open asynchronous ones together and leave siblings running when one fails.
Every start, and every test, builds a new container.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from dependency_injector import containers, providers

from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.loops import LoopLag
from persys_server.grpc.interceptors import RequestBoundary
from persys_server.grpc.server import GrpcServer
from persys_server.grpc.servicer import ControlServicer
from persys_server.http.app import http_app
from persys_server.http.server import HttpServer
from persys_server.observability.gauges import ReplicaGauges
from persys_server.observability.metrics import Metrics
from persys_server.observability.tracing import Traces
from persys_server.phase import PhaseSwitch
from persys_server.readings import Readings
from persys_server.scheduler_api import SchedulerReplica
from persys_server.settings import Settings

__all__ = ["Container", "SchedulerFactory"]

SchedulerFactory: TypeAlias = Callable[[SchedulerPorts, SchedulerConfig], SchedulerReplica]


class Container(containers.DeclarativeContainer):
    """One replica. The dependencies are handed in; everything else is made once, when asked for."""

    settings = providers.Dependency(instance_of=Settings)
    config = providers.Dependency(instance_of=SchedulerConfig)
    ports = providers.Dependency(instance_of=SchedulerPorts)
    scheduler_factory: providers.Dependency[SchedulerFactory] = providers.Dependency()
    metrics = providers.Dependency(instance_of=Metrics)
    phase = providers.Dependency(instance_of=PhaseSwitch)
    traces: providers.Dependency[Traces] = providers.Dependency()

    scheduler = providers.Singleton(
        lambda factory, ports, config: factory(ports, config), scheduler_factory, ports, config
    )
    gauges = providers.Singleton(ReplicaGauges, settings.provided.usage_series_max)
    lag = providers.Singleton(LoopLag, ports.provided.clock, bound=timedelta(0))
    readings = providers.Singleton(
        Readings,
        scheduler,
        ports.provided.telemetry,
        phase,
        metrics,
        gauges,
        lag,
    )
    servicer = providers.Singleton(
        ControlServicer,
        scheduler,
        events=ports.provided.events,
        clock=ports.provided.clock,
        phase=phase,
    )
    boundary = providers.Singleton(
        RequestBoundary, metrics, phase, ports.provided.clock, traces=traces
    )
    grpc_server = providers.Singleton(GrpcServer, servicer, boundary)
    http_server = providers.Singleton(
        HttpServer,
        providers.Singleton(
            http_app, readings.provided.probe, readings.provided.metrics_page, traces
        ),
    )

"""The servicer of ``persys.control.v1.AgentControl``: the topics put together, nothing more."""

from __future__ import annotations

from persys_core.ports.clock import Clock
from persys_core.ports.events import EventLog
from persys_server.grpc.service.agents import AgentRpcs
from persys_server.grpc.service.automation import AutomationRpcs
from persys_server.grpc.service.events import EventRpcs
from persys_server.grpc.service.later import LaterRpcs
from persys_server.grpc.service.operations import OperationRpcs
from persys_server.grpc.service.recovery import RecoveryRpcs
from persys_server.grpc.service.views import ViewRpcs
from persys_server.grpc.service.volumes import VolumeRpcs
from persys_server.grpc.service.workloads import WorkloadRpcs
from persys_server.phase import PhaseSwitch
from persys_server.scheduler_api import UseCases

__all__ = ["ControlServicer"]


class ControlServicer(
    AgentRpcs,
    WorkloadRpcs,
    AutomationRpcs,
    ViewRpcs,
    EventRpcs,
    OperationRpcs,
    RecoveryRpcs,
    VolumeRpcs,
    LaterRpcs,
):
    """Every RPC of the contract; errors are turned into status codes by the boundary."""

    def __init__(
        self, scheduler: UseCases, *, events: EventLog, clock: Clock, phase: PhaseSwitch
    ) -> None:
        self.admission = scheduler.admission
        self.automation = scheduler.automation
        self.queries = scheduler.queries
        self.nodes = scheduler.nodes
        self.recovery = scheduler.recovery
        self.volumes = scheduler.volumes
        self.events = events
        self.clock = clock
        self.phase = phase

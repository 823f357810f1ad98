"""The servicer of ``persys.control.v1.AgentControl``: the topics put together, nothing more."""

from __future__ import annotations

from persys_core.control.api import (
    AdmissionApi,
    AutomationApi,
    NodeOperationsApi,
    QueriesApi,
    RecoveryApi,
)
from persys_core.ports.clock import Clock
from persys_core.ports.events import EventLog
from persys_server.grpc.service.agents import AgentRpcs
from persys_server.grpc.service.automation import AutomationRpcs
from persys_server.grpc.service.events import EventRpcs
from persys_server.grpc.service.later import LaterRpcs
from persys_server.grpc.service.operations import OperationRpcs
from persys_server.grpc.service.recovery import RecoveryRpcs
from persys_server.grpc.service.views import ViewRpcs
from persys_server.grpc.service.workloads import WorkloadRpcs
from persys_server.phase import PhaseSwitch

__all__ = ["ControlServicer"]


class ControlServicer(
    AgentRpcs,
    WorkloadRpcs,
    AutomationRpcs,
    ViewRpcs,
    EventRpcs,
    OperationRpcs,
    RecoveryRpcs,
    LaterRpcs,
):
    """Every RPC of the contract; errors are turned into status codes by the boundary."""

    def __init__(
        self,
        *,
        admission: AdmissionApi,
        automation: AutomationApi,
        queries: QueriesApi,
        nodes: NodeOperationsApi,
        recovery: RecoveryApi,
        events: EventLog,
        clock: Clock,
        phase: PhaseSwitch,
    ) -> None:
        self.admission = admission
        self.automation = automation
        self.queries = queries
        self.nodes = nodes
        self.recovery = recovery
        self.events = events
        self.clock = clock
        self.phase = phase

"""How an operator leads the cluster out of recovery.

Decided here: nothing.
"""

from __future__ import annotations

from persys_core.control.api import RecoveryApi
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.mapping import recovery

__all__ = ["RecoveryRpcs"]

_ACTOR = "operator"


class RecoveryRpcs(control_pb2_grpc.AgentControlServicer):
    """ImportFromAgents and AcknowledgeEmpty."""

    recovery: RecoveryApi

    async def ImportFromAgents(
        self, request: pb.ImportFromAgentsRequest, context: Context
    ) -> pb.ImportFromAgentsResponse:
        """Rebuild records from what agents run."""
        order = recovery.import_order(request, _ACTOR)
        return recovery.import_response(await self.recovery.import_from_agents(order))

    async def AcknowledgeEmpty(
        self, request: pb.AcknowledgeEmptyRequest, context: Context
    ) -> pb.AcknowledgeEmptyResponse:
        """Take the store as it is."""
        order = recovery.acknowledgement(request, _ACTOR)
        return recovery.acknowledged_response(await self.recovery.acknowledge_empty(order))

"""What agents call: registration and heartbeats."""

from __future__ import annotations

from persys_core.control.api import AdmissionApi
from persys_core.model.errors import NotFoundError, TakenError
from persys_core.ports.clock import Clock
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.mapping import nodes_in
from persys_server.grpc.mapping.times import timestamp

__all__ = ["AgentRpcs", "NotRegisteredError"]


class NotRegisteredError(NotFoundError):
    """The sender of a heartbeat has to register first; agents react to the code."""

    def __init__(self, node_id: str) -> None:
        super().__init__("node", node_id)
        self.args = (f'node "{node_id}" not registered',)


class AgentRpcs(control_pb2_grpc.AgentControlServicer):
    """RegisterNode and Heartbeat."""

    admission: AdmissionApi
    clock: Clock

    async def RegisterNode(
        self, request: pb.RegisterNodeRequest, context: Context
    ) -> pb.RegisterNodeResponse:
        """A node presents itself."""
        answer = await self.admission.register_node(nodes_in.register_node(request))
        if answer.id_taken:
            raise TakenError(answer.reason)
        return pb.RegisterNodeResponse(
            accepted=answer.accepted,
            reason=answer.reason,
            heartbeat_interval_seconds=max(1, round(answer.heartbeat_interval.total_seconds())),
            lease_expires_at=timestamp(answer.lease_expires_at),
        )

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """A node is alive, and says what it runs."""
        beat = nodes_in.heartbeat(request, self.clock.now())
        answer = await self.admission.heartbeat(beat)
        if not answer.known:
            raise NotRegisteredError(beat.node_id)
        return pb.HeartbeatResponse(
            acknowledged=answer.acknowledged,
            drain_node=answer.drain_node,
            lease_expires_at=timestamp(answer.lease_expires_at),
            lease_confirmed_seconds=(
                None if answer.confirmed is None else answer.confirmed.total_seconds()
            ),
        )

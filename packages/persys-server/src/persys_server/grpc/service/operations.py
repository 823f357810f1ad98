"""What operators do to nodes."""

from __future__ import annotations

from persys_core.control.api import NodeOperationsApi
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.mapping.nodes_in import intent_change
from persys_server.grpc.mapping.nodes_out import node_view

__all__ = ["OperationRpcs"]

_ACTOR = "operator"


class OperationRpcs(control_pb2_grpc.AgentControlServicer):
    """CordonNode and UncordonNode."""

    nodes: NodeOperationsApi

    async def CordonNode(
        self, request: pb.CordonNodeRequest, context: Context
    ) -> pb.CordonNodeResponse:
        """Keep new work off a node."""
        view = await self.nodes.cordon(intent_change(request, _ACTOR))
        return pb.CordonNodeResponse(
            accepted=True, message="cordoned: no new work comes here", node=node_view(view)
        )

    async def UncordonNode(
        self, request: pb.UncordonNodeRequest, context: Context
    ) -> pb.UncordonNodeResponse:
        """Let work come again."""
        view = await self.nodes.uncordon(intent_change(request, _ACTOR))
        return pb.UncordonNodeResponse(
            accepted=True, message="uncordoned: work may come again", node=node_view(view)
        )

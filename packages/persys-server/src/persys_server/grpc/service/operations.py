"""What operators do to nodes.

Decided here: nothing. An order to an unknown node is NOT_FOUND and one that the node's state does
not permit FAILED_PRECONDITION, for all of them.
"""

from __future__ import annotations

from persys_core.control.api import NodeOperationsApi
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.mapping import node_operations_in as asked
from persys_server.grpc.mapping import node_operations_out as told
from persys_server.grpc.mapping.nodes_out import node_view

__all__ = ["OperationRpcs"]

_ACTOR = "operator"


class OperationRpcs(control_pb2_grpc.AgentControlServicer):
    """Cordons, drains, taints and labels, and how far a drain is."""

    nodes: NodeOperationsApi

    async def CordonNode(
        self, request: pb.CordonNodeRequest, context: Context
    ) -> pb.CordonNodeResponse:
        """Keep new work off a node."""
        view = await self.nodes.cordon(asked.intent_change(request, _ACTOR))
        return pb.CordonNodeResponse(
            accepted=True, message="cordoned: no new work comes here", node=node_view(view)
        )

    async def UncordonNode(
        self, request: pb.UncordonNodeRequest, context: Context
    ) -> pb.UncordonNodeResponse:
        """Let work come again."""
        view = await self.nodes.uncordon(asked.intent_change(request, _ACTOR))
        return pb.UncordonNodeResponse(
            accepted=True, message="uncordoned: work may come again", node=node_view(view)
        )

    async def DrainNode(
        self, request: pb.DrainNodeRequest, context: Context
    ) -> pb.DrainNodeResponse:
        """Have everything leave a node; it goes on after the answer."""
        order = asked.drain_node(request, _ACTOR)
        view = await self.nodes.drain(order)
        return told.drain_response(view, await self.nodes.progress(order.change.node_id))

    async def UndrainNode(
        self, request: pb.UndrainNodeRequest, context: Context
    ) -> pb.UndrainNodeResponse:
        """Return a node to service."""
        view = await self.nodes.undrain(asked.intent_change(request, _ACTOR))
        message = "in service: work may come again; what has left stays where it is"
        return pb.UndrainNodeResponse(accepted=True, message=message, node=node_view(view))

    async def GetDrainProgress(
        self, request: pb.GetDrainProgressRequest, context: Context
    ) -> pb.GetDrainProgressResponse:
        """How far a drain is, and what cannot leave."""
        return told.drain_progress(await self.nodes.progress(asked.drained_node(request)))

    async def RemoveNode(
        self, request: pb.RemoveNodeRequest, context: Context
    ) -> pb.RemoveNodeResponse:
        """Forget a node that is gone for good."""
        order = asked.remove_node(request, _ACTOR)
        return told.removal_response(order.change.node_id, await self.nodes.remove(order))

    async def TaintNode(
        self, request: pb.TaintNodeRequest, context: Context
    ) -> pb.TaintNodeResponse:
        """Mark a node."""
        change = asked.taint_node(request, _ACTOR)
        view = await self.nodes.taint(change)
        message = told.taint_words(change)
        return pb.TaintNodeResponse(accepted=True, message=message, node=node_view(view))

    async def UntaintNode(
        self, request: pb.UntaintNodeRequest, context: Context
    ) -> pb.UntaintNodeResponse:
        """Take marks away."""
        change = asked.untaint_node(request, _ACTOR)
        view = await self.nodes.untaint(change)
        message = told.untaint_words(change)
        return pb.UntaintNodeResponse(accepted=True, message=message, node=node_view(view))

    async def SetNodeLabel(
        self, request: pb.SetNodeLabelRequest, context: Context
    ) -> pb.SetNodeLabelResponse:
        """Set an operator's label."""
        change = asked.set_label(request, _ACTOR)
        view = await self.nodes.label(change)
        message = told.label_set_words(change)
        return pb.SetNodeLabelResponse(accepted=True, message=message, node=node_view(view))

    async def DeleteNodeLabel(
        self, request: pb.DeleteNodeLabelRequest, context: Context
    ) -> pb.DeleteNodeLabelResponse:
        """Take an operator's label away."""
        change = asked.delete_label(request, _ACTOR)
        view = await self.nodes.label(change)
        message = told.label_deleted_words(change, view)
        return pb.DeleteNodeLabelResponse(accepted=True, message=message, node=node_view(view))

"""The calls by which an operator changes a node, and the one that says how far a drain is."""

from __future__ import annotations

from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persysctl.calls import Ask

__all__ = ["NodeOperations"]


class NodeOperations:
    """Part of ``client.Client``, whose channel, deadline and errors these calls share."""

    def __init__(self, stub: control_pb2_grpc.AgentControlAsyncStub, ask: Ask) -> None:
        self._stub = stub
        self._ask = ask

    async def cordon(self, node_id: str, reason: str) -> pb.CordonNodeResponse:
        """Let no new work come."""
        request = pb.CordonNodeRequest(node_id=node_id, reason=reason)
        return await self._ask(self._stub.CordonNode, request)

    async def uncordon(self, node_id: str, reason: str) -> pb.UncordonNodeResponse:
        """Let work come again."""
        request = pb.UncordonNodeRequest(node_id=node_id, reason=reason)
        return await self._ask(self._stub.UncordonNode, request)

    async def drain(self, request: pb.DrainNodeRequest) -> pb.DrainNodeResponse:
        """Have everything leave."""
        return await self._ask(self._stub.DrainNode, request)

    async def undrain(self, node_id: str, reason: str) -> pb.UndrainNodeResponse:
        """End a drain and a cordon."""
        request = pb.UndrainNodeRequest(node_id=node_id, reason=reason)
        return await self._ask(self._stub.UndrainNode, request)

    async def remove(self, node_id: str, reason: str, *, force: bool) -> pb.RemoveNodeResponse:
        """Forget a node."""
        request = pb.RemoveNodeRequest(node_id=node_id, reason=reason, force=force)
        return await self._ask(self._stub.RemoveNode, request)

    async def drain_progress(self, node_id: str) -> pb.GetDrainProgressResponse:
        """How far a drain is."""
        request = pb.GetDrainProgressRequest(node_id=node_id)
        return await self._ask(self._stub.GetDrainProgress, request)

    async def taint(self, node_id: str, taint: pb.NodeTaint) -> pb.TaintNodeResponse:
        """Set a taint."""
        request = pb.TaintNodeRequest(node_id=node_id, taint=taint)
        return await self._ask(self._stub.TaintNode, request)

    async def untaint(self, node_id: str, key: str, effect: str) -> pb.UntaintNodeResponse:
        """Take taints away; without an effect all of the key."""
        request = pb.UntaintNodeRequest(node_id=node_id, key=key, effect=effect)
        return await self._ask(self._stub.UntaintNode, request)

    async def set_label(self, node_id: str, key: str, value: str) -> pb.SetNodeLabelResponse:
        """Set a label."""
        request = pb.SetNodeLabelRequest(node_id=node_id, key=key, value=value)
        return await self._ask(self._stub.SetNodeLabel, request)

    async def delete_label(self, node_id: str, key: str) -> pb.DeleteNodeLabelResponse:
        """Take a label away."""
        request = pb.DeleteNodeLabelRequest(node_id=node_id, key=key)
        return await self._ask(self._stub.DeleteNodeLabel, request)

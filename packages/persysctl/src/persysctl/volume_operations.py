"""The calls about volumes, and the one by which an operator vouches that a node is cut off."""

from __future__ import annotations

from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persysctl.calls import Ask

__all__ = ["VolumeOperations"]


class VolumeOperations:
    """Part of ``client.Client``, whose channel, deadline and errors these calls share."""

    def __init__(self, stub: control_pb2_grpc.AgentControlAsyncStub, ask: Ask) -> None:
        self._stub = stub
        self._ask = ask

    async def list(
        self, *, node_id: str = "", workload_id: str = "", phase: str = ""
    ) -> pb.ListVolumesResponse:
        """Volumes that match; empty filters match all."""
        request = pb.ListVolumesRequest(node_id=node_id, workload_id=workload_id, phase=phase)
        return await self._ask(self._stub.ListVolumes, request)

    async def release(
        self, volume_id: str, reason: str, *, force: bool
    ) -> pb.ReleaseVolumeResponse:
        """Give up what is recorded of a volume."""
        request = pb.ReleaseVolumeRequest(volume_id=volume_id, reason=reason, force=force)
        return await self._ask(self._stub.ReleaseVolume, request)

    async def fence(self, node_id: str, reason: str) -> pb.FenceNodeResponse:
        """Vouch that a silent node is cut off."""
        request = pb.FenceNodeRequest(node_id=node_id, reason=reason)
        return await self._ask(self._stub.FenceNode, request)

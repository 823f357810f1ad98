"""Volumes, who holds them, and what an operator answers for.

Decided here: nothing. A volume that is in use is no error of the call: its release is not accepted,
and the answer says what uses it.
"""

from __future__ import annotations

from persys_core.control.api import VolumesApi
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.mapping import volumes_in as asked
from persys_server.grpc.mapping import volumes_out as told
from persys_server.grpc.service.waiting import caught_up

__all__ = ["VolumeRpcs"]

_ACTOR = "operator"


class VolumeRpcs(control_pb2_grpc.AgentControlServicer):
    """ListVolumes, FenceNode and ReleaseVolume."""

    volumes: VolumesApi

    async def ListVolumes(
        self, request: pb.ListVolumesRequest, context: Context
    ) -> pb.ListVolumesResponse:
        """Volumes, sorted by id."""
        wanted, at_least = asked.list_volumes(request)
        reading = self.volumes.list_volumes(wanted, at_least=at_least)
        return told.volume_list(*await caught_up(reading, at_least, context))

    async def FenceNode(
        self, request: pb.FenceNodeRequest, context: Context
    ) -> pb.FenceNodeResponse:
        """Take an operator's word that a silent node is cut off."""
        fenced = await self.volumes.fence(asked.fence_node(request, _ACTOR))
        return told.fence_response(fenced)

    async def ReleaseVolume(
        self, request: pb.ReleaseVolumeRequest, context: Context
    ) -> pb.ReleaseVolumeResponse:
        """Give up what is recorded of a volume."""
        release = await self.volumes.release(asked.release_volume(request, _ACTOR))
        return told.release_response(release)

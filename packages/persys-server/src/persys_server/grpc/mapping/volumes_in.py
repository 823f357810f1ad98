"""Requests about volumes, and the word that a node is cut off, checked field by field.

Decided here: what an operator has to answer for has a reason, which is kept in the event.
"""

from __future__ import annotations

from persys_core.control.requests import NodeIntentChange, ReleaseVolume, VolumeFilter
from persys_core.model.ids import StoreRevision
from persys_core.model.volume import VolumePhase
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.fields import Fields

__all__ = ["fence_node", "list_volumes", "release_volume"]

_PHASES = {str(phase).lower(): str(phase) for phase in VolumePhase}


def list_volumes(message: pb.ListVolumesRequest) -> tuple[VolumeFilter, StoreRevision]:
    """Which volumes to show, and how new at least; raises ``InvalidInputError`` like all here."""
    fields = Fields()
    wanted = VolumeFilter(
        node_id=fields.text("node_id", message.node_id),
        workload_id=fields.text("workload_id", message.workload_id),
        phase=fields.word("phase", message.phase, _PHASES, ""),
    )
    fields.amount("min_revision", message.min_revision, 2**63 - 1, "")
    fields.finish()
    return wanted, message.min_revision


def fence_node(message: pb.FenceNodeRequest, actor: str) -> NodeIntentChange:
    """A node that is cut off."""
    fields = Fields()
    node_id = fields.existing_id("node_id", message.node_id)
    reason = fields.reason("reason", message.reason)
    if not reason.strip():
        fields.add("reason", "reason is required: say how the node was cut off")
    fields.finish()
    return NodeIntentChange(node_id, reason, actor)


def release_volume(message: pb.ReleaseVolumeRequest, actor: str) -> ReleaseVolume:
    """A volume to give up."""
    fields = Fields()
    volume_id = fields.existing_id("volume_id", message.volume_id)
    reason = fields.reason("reason", message.reason)
    if message.force and not reason.strip():
        fields.add(
            "reason", "reason is required with force: say why nothing writes to the volume any more"
        )
    fields.finish()
    return ReleaseVolume(volume_id, reason, message.force, actor)

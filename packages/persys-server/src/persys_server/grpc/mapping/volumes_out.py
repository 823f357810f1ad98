"""Volumes as the wire shows them, and words for operators about what they gave up.

Decided here: that each text says what is so now and what is left to do. Errors come from agents:
what looks like a secret in them is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable

from persys_core.control.answers import Freshness, NodeFenced, VolumeRelease, VolumeView
from persys_core.model.event import capped
from persys_core.model.secrets import scrubbed
from persys_core.model.volume import Attachment, Volume
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.nodes_out import node_view
from persys_server.grpc.mapping.times import timestamp

__all__ = ["fence_response", "release_response", "volume_list", "volume_view"]

_NAMED = 5


def volume_view(view: VolumeView) -> pb.VolumeView:
    """One volume with everyone who holds it."""
    return pb.VolumeView(
        disk=_disk(view.volume),
        attachments=map(_attachment, view.attachments),
        held_reason=capped(view.held_reason),
    )


def volume_list(views: Iterable[VolumeView], fresh: Freshness) -> pb.ListVolumesResponse:
    """The answer to ListVolumes."""
    return pb.ListVolumesResponse(
        volumes=map(volume_view, views),
        store_revision=fresh.revision,
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
    )


def release_response(release: VolumeRelease) -> pb.ReleaseVolumeResponse:
    """The answer to ReleaseVolume."""
    return pb.ReleaseVolumeResponse(
        accepted=release.accepted,
        message=_release_words(release),
        volume=volume_view(release.view),
    )


def fence_response(fenced: NodeFenced) -> pb.FenceNodeResponse:
    """The answer to FenceNode."""
    return pb.FenceNodeResponse(
        accepted=True,
        message=_fence_words(fenced.volume_ids),
        node=node_view(fenced.node),
        volume_ids=fenced.volume_ids,
    )


def _disk(volume: Volume) -> pb.DiskView:
    return pb.DiskView(
        id=volume.id,
        name=volume.name,
        driver=volume.driver,
        size_gb=volume.size_gb,
        fs_type=volume.fs_type,
        access_mode=volume.access_mode,
        retain_policy=str(volume.retain_policy),
        phase=str(volume.phase),
        last_error=_error(volume.last_error),
        node_id=volume.node_id,
        device=volume.device,
        standalone=volume.standalone,
        mount_path=volume.mount_path,
        workload_refs=volume.workload_refs,
        attached_nodes=volume.attached_nodes,
        created_at=timestamp(volume.created_at),
        updated_at=timestamp(volume.updated_at),
    )


def _attachment(held: Attachment) -> pb.VolumeAttachmentView:
    return pb.VolumeAttachmentView(
        workload_id=held.workload_id,
        node_id=held.node_id,
        mount_path=held.mount_path,
        read_only=held.read_only,
        phase=str(held.phase),
        last_error=_error(held.last_error),
        last_transition=timestamp(held.last_transition),
    )


def _error(text: str) -> str:
    return capped(scrubbed(text, ()))


def _release_words(release: VolumeRelease) -> str:
    view, holder = release.view, release.holder
    if release.removed:
        return "released: nothing is recorded of it any more, and its data is left as it is"
    if release.accepted:
        return (
            f"released from {holder}: work may start elsewhere and write to it, so make sure that"
            f" nothing on {holder} can; this is over as soon as that node is heard again"
        )
    held = view.held_reason or _held_by(view.attachments)
    force = f", or release it by force if {holder} cannot write any more" if holder else ""
    return f"{view.volume.id} is in use: {held}; delete what uses it{force}"


def _held_by(attachments: Iterable[Attachment]) -> str:
    return _some([f"{held.phase} on {held.node_id} for {held.workload_id}" for held in attachments])


def _fence_words(volume_ids: tuple[str, ...]) -> str:
    over = "this is over as soon as it is heard again"
    if not volume_ids:
        return f"fenced: no exclusive volume is held there; {over}"
    what = "1 exclusive volume" if len(volume_ids) == 1 else f"{len(volume_ids)} exclusive volumes"
    return f"fenced: {what} may move from there ({_some(volume_ids)}); {over}"


def _some(texts: list[str] | tuple[str, ...]) -> str:
    return ", ".join(texts[:_NAMED]) + (", …" if len(texts) > _NAMED else "")

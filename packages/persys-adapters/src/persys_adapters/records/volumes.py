"""The stored shapes of volumes and attachments: the reference's, with ours under ``persys``.

A phase or a policy that another program wrote in words of its own is read as the nearest of ours:
no volume may be lost over a word.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from attrs import frozen

from persys_adapters.records.json_values import EPOCH, JsonObject, from_json, to_json
from persys_core.model.volume import (
    Attachment,
    AttachmentPhase,
    RetainPolicy,
    Volume,
    VolumeClaim,
    VolumePhase,
)
from persys_core.ports.cluster_store import Key

__all__ = [
    "AttachmentExtras",
    "StoredAttachment",
    "StoredVolume",
    "VolumeExtras",
    "attachment_from",
    "attachment_json",
    "volume_from",
    "volume_json",
]

_WordT = TypeVar("_WordT", bound=StrEnum)


@frozen
class VolumeExtras:
    """What a volume of ours has beyond the reference's."""

    claim: VolumeClaim | None = None


@frozen
class StoredVolume:
    """``/volumes/{id}``, sizes in GB."""

    id: str = ""
    name: str = ""
    driver: str = ""
    size_gb: int = 0
    access_mode: str = ""
    fs_type: str = ""
    retain_policy: str = ""
    phase: str = ""
    last_error: str = ""
    workload_refs: tuple[str, ...] = ()
    attached_nodes: tuple[str, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None
    node_id: str = ""
    device: str = ""
    standalone: bool = False
    mount_path: str = ""
    persys: VolumeExtras = VolumeExtras()


@frozen
class AttachmentExtras:
    """What an attachment of ours has beyond the reference's."""

    deletes_data: bool = False


@frozen
class StoredAttachment:
    """``/attachments/{node}/{workload}/{volume}``; ``id`` is the whole key."""

    id: str = ""
    volume_id: str = ""
    workload_id: str = ""
    node_id: str = ""
    driver: str = ""
    mount_path: str = ""
    read_only: bool = False
    phase: str = ""
    last_error: str = ""
    last_transition: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    persys: AttachmentExtras = AttachmentExtras()


def volume_json(volume: Volume) -> JsonObject:
    """``volume`` as it is stored."""
    return to_json(
        StoredVolume(
            id=volume.id,
            name=volume.name,
            driver=volume.driver,
            size_gb=volume.size_gb,
            access_mode=volume.access_mode,
            fs_type=volume.fs_type,
            retain_policy=volume.retain_policy.value,
            phase=volume.phase.value,
            last_error=volume.last_error,
            workload_refs=volume.workload_refs,
            attached_nodes=volume.attached_nodes,
            created_at=volume.created_at,
            updated_at=volume.updated_at,
            node_id=volume.node_id,
            device=volume.device,
            standalone=volume.standalone,
            mount_path=volume.mount_path,
            persys=VolumeExtras(volume.claim),
        )
    )


def volume_from(value: JsonObject) -> Volume:
    """The volume in ``value``; what the reference leaves out has its defaults."""
    stored = from_json(value, StoredVolume)
    driver, _, name = stored.id.partition(":")
    return Volume(
        id=stored.id,
        name=stored.name or name,
        driver=stored.driver or driver,
        created_at=stored.created_at or EPOCH,
        updated_at=stored.updated_at or EPOCH,
        size_gb=stored.size_gb,
        access_mode=stored.access_mode,
        fs_type=stored.fs_type,
        mount_path=stored.mount_path,
        retain_policy=_word(stored.retain_policy, RetainPolicy, RetainPolicy.DELETE),
        phase=_word(stored.phase, VolumePhase, VolumePhase.PROVISIONED),
        last_error=stored.last_error,
        workload_refs=tuple(sorted(set(stored.workload_refs))),
        attached_nodes=tuple(sorted(set(stored.attached_nodes))),
        node_id=stored.node_id,
        device=stored.device,
        standalone=stored.standalone,
        claim=stored.persys.claim,
    )


def attachment_json(attachment: Attachment) -> JsonObject:
    """``attachment`` as it is stored."""
    key = Key.attachment(attachment.node_id, attachment.workload_id, attachment.volume_id)
    return to_json(
        StoredAttachment(
            id=f"/attachments/{key.id}",
            volume_id=attachment.volume_id,
            workload_id=attachment.workload_id,
            node_id=attachment.node_id,
            driver=attachment.driver,
            mount_path=attachment.mount_path,
            read_only=attachment.read_only,
            phase=attachment.phase.value,
            last_error=attachment.last_error,
            last_transition=attachment.last_transition,
            created_at=attachment.created_at,
            updated_at=attachment.updated_at,
            persys=AttachmentExtras(attachment.deletes_data),
        )
    )


def attachment_from(value: JsonObject) -> Attachment:
    """The attachment in ``value``."""
    stored = from_json(value, StoredAttachment)
    created = stored.created_at or EPOCH
    return Attachment(
        volume_id=stored.volume_id,
        workload_id=stored.workload_id,
        node_id=stored.node_id,
        created_at=created,
        updated_at=stored.updated_at or created,
        last_transition=stored.last_transition or created,
        driver=stored.driver,
        mount_path=stored.mount_path,
        read_only=stored.read_only,
        phase=_word(stored.phase, AttachmentPhase, AttachmentPhase.ATTACHING),
        last_error=stored.last_error,
        deletes_data=stored.persys.deletes_data,
    )


def _word(text: str, kind: type[_WordT], otherwise: _WordT) -> _WordT:
    known = {each.value.lower(): each for each in kind}
    return known.get(text.strip().lower(), otherwise)

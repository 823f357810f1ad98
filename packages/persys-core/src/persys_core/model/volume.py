"""Volumes and their attachments: what is durable of a workload's data, and who may write to it.

The scheduler never touches a volume (decisions §3): agents provision and attach when they are
sent the workload, and these records follow what they confirm. How they follow is decided in
``persys_core.volumes``.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from persys_core.model.ids import NodeId, WorkloadId

__all__ = [
    "Attachment",
    "AttachmentPhase",
    "RetainPolicy",
    "Volume",
    "VolumeClaim",
    "VolumeId",
    "VolumePhase",
]

VolumeId = str
"""``{driver}:{name}`` of a managed volume, ``disk-{uuid}`` of a standalone disk."""


class VolumePhase(StrEnum):
    """How far a volume is (values of the reference)."""

    PENDING = "Pending"
    """Wished for; no agent was ever told of it."""
    AVAILABLE = "Available"
    """A standalone disk that nothing refers to."""
    PROVISIONING = "Provisioning"
    """An agent was told to make and attach it, and has not confirmed."""
    PROVISIONED = "Provisioned"
    """It exists, and is attached nowhere."""
    ATTACHED = "Attached"
    RELEASED = "Released"
    """Nothing refers to it any more; whether data is left is not known."""
    RETAINED = "Retained"
    """Nothing refers to it any more; its data is kept on purpose."""
    DELETING = "Deleting"
    """An agent is to remove its data with the user's delete, and has not confirmed."""
    DELETED = "Deleted"
    ERROR = "Error"


class AttachmentPhase(StrEnum):
    """How far one workload's hold on a volume is, on one node."""

    ATTACHING = "Attaching"
    ATTACHED = "Attached"
    DETACHING = "Detaching"
    """The node is to give it up, and has not confirmed."""
    DETACHED = "Detached"
    ERROR = "Error"


class RetainPolicy(StrEnum):
    """What becomes of the data when the user deletes the last workload that refers to it."""

    DELETE = "Delete"
    RETAIN = "Retain"


@frozen
class VolumeClaim:
    """Who alone may write to an exclusive volume: one workload, on one node, since an instant."""

    workload_id: WorkloadId
    node_id: NodeId
    since: datetime
    uid: str = ""
    """The workload's, so that a later life of the same id is told apart."""
    released_at: datetime | None = None
    """When an operator answered for it that the holder writes no more, if one did."""
    passed_from: tuple[NodeId, ...] = ()
    """Nodes that held it before and did not confirm the end: operators answered for them."""


@frozen
class Volume:
    """One volume. ``size_gb`` in GB; ``claim`` only where one node at a time may write.

    ``workload_refs`` and ``attached_nodes`` are sorted. ``node_id``, ``device`` and ``standalone``
    are of a disk that was created by itself.
    """

    id: VolumeId
    name: str
    driver: str
    created_at: datetime
    updated_at: datetime
    size_gb: int = 0
    access_mode: str = ""
    fs_type: str = ""
    mount_path: str = ""
    retain_policy: RetainPolicy = RetainPolicy.DELETE
    phase: VolumePhase = VolumePhase.PENDING
    last_error: str = ""
    workload_refs: tuple[WorkloadId, ...] = ()
    attached_nodes: tuple[NodeId, ...] = ()
    node_id: NodeId = ""
    device: str = ""
    standalone: bool = False
    claim: VolumeClaim | None = None


@frozen
class Attachment:
    """One workload's hold on one volume on one node, from the call that makes it to its end.

    ``deletes_data``: its end carries out a user's delete, so that the data goes with it.
    """

    volume_id: VolumeId
    workload_id: WorkloadId
    node_id: NodeId
    created_at: datetime
    updated_at: datetime
    last_transition: datetime
    driver: str = ""
    mount_path: str = ""
    read_only: bool = False
    phase: AttachmentPhase = AttachmentPhase.ATTACHING
    last_error: str = ""
    deletes_data: bool = False

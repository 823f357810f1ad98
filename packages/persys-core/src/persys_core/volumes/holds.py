"""A workload's attachments once a commit is done: where it holds its volumes, and how far that is.

Decided here: whose data a delete takes with it, settled by the commit that announces the call. And
how far an attachment is: it begins with the commit that announces to a node that the workload is to
run there, is confirmed by the workload running there, and ends when the node confirmed that it has
the workload no more. Pure.

================================================ ==========================================
the workload                                     its attachments
================================================ ==========================================
this revision was sent to its node, to run       Attaching there, for each volume of its spec
runs there, of the present revision              Attached; those of dropped volumes end
failed there for want of storage                 Error, with the agent's words
is being deleted there                           Detaching; once the agent is told, with its
                                                 data, where that is nobody else's
moved, and the old node owes a delete            Detaching on the old node
gone from the node, or the node gone             none
================================================ ==========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from attrs import evolve, frozen

from persys_core.model.ids import NodeId
from persys_core.model.spec import ManagedVolume
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.volume import Attachment, AttachmentPhase, RetainPolicy, Volume, VolumeId
from persys_core.model.workload import (
    Assignment,
    Intent,
    IntentAction,
    StatusRecord,
    Tombstone,
    Workload,
)
from persys_core.placement.demand import driver_name
from persys_core.ports.cluster_store import Key, Record
from persys_core.volumes.disks import volumes_wanted
from persys_core.volumes.outcome import Outcome
from persys_core.volumes.wishes import is_local

__all__ = ["STORAGE_FAILED", "holds_after", "removes_data", "retain_policy", "storage_error"]

STORAGE_FAILED = "storage_failed"
"""The failure code of an agent that could not make or attach a volume."""
_FAILING = (WorkloadStatus.RETRY_PENDING, WorkloadStatus.FAILED, WorkloadStatus.PENDING)


def retain_policy(volume: ManagedVolume) -> RetainPolicy:
    """What the spec wants kept; anything but *Retain* is *Delete*, as in the reference."""
    wanted = volume.retain_policy.strip().lower()
    return RetainPolicy.RETAIN if wanted == "retain" else RetainPolicy.DELETE


def storage_error(status: StatusRecord | None) -> str:
    """Why the workload's storage does not work now; empty where nothing is known against it."""
    failure = status.failure if status else None
    if status is None or failure is None or failure.code != STORAGE_FAILED:
        return ""
    return failure.message if status.status in _FAILING else ""


def removes_data(node_id: NodeId, workload_id: str, uid: str, after: Outcome) -> bool:
    """Whether a user's delete on this node takes the data of the managed volumes with it.

    ``uid`` is the life of the workload that is deleted; its id may have another one by now.
    Only where no volume that is to go is anybody else's: the agent is told once for all of them,
    and keeps those with the policy *Retain* by itself. A copy that somebody else started, and that
    ended before it was seen to run, may have data on the node without an attachment.
    """
    held = [e for e in after.holds_of(workload_id).values() if e.node_id == node_id]
    if not held:
        return not _used_by_others(node_id, workload_id, uid, after)
    kept = [each for each in held if not each.deletes_data]
    return len(kept) < len(held) and all(_is_retained(each, after) for each in kept)


def _used_by_others(node_id: NodeId, workload_id: str, uid: str, after: Outcome) -> bool:
    """Whether any volume that the workload wants is somebody else's too, or stands by itself."""
    workload = after.workload(workload_id)
    wanted = volumes_wanted(workload.spec, after) if workload is not None else {}
    known = (after.volume(id_) for id_ in {*wanted, *after.records.volumes_of(workload_id)})
    return any(
        volume.standalone or _is_anothers(volume, node_id, workload_id, uid, after)
        for volume in known
        if volume is not None and volume.retain_policy is not RetainPolicy.RETAIN
    )


def _is_retained(hold: Attachment, after: Outcome) -> bool:
    volume = after.volume(hold.volume_id)
    return volume is not None and volume.retain_policy is RetainPolicy.RETAIN


def holds_after(workload_id: str, after: Outcome, now: datetime) -> Mapping[Key, Attachment]:
    """The workload's attachments, given its records in ``after``."""
    held = after.holds_of(workload_id)
    graves = after.graves(workload_id)
    found = {
        key: _leaving(each, graves[each.node_id], after, now)
        for key, each in held.items()
        if each.node_id in graves
    }
    workload, placed = after.workload(workload_id), after.assignment(workload_id)
    if workload is not None and placed is not None:
        found.update(_Here(workload, placed, after.status(workload_id), after, now).holds(held))
    return found


@frozen
class _Here:
    """The attachments on the node that the workload is assigned to."""

    workload: Workload
    placed: Assignment
    status: StatusRecord | None
    after: Outcome
    now: datetime

    def holds(self, held: Mapping[Key, Attachment]) -> Mapping[Key, Attachment]:
        here = {key: each for key, each in held.items() if each.node_id == self.placed.node_id}
        wanted = volumes_wanted(self.workload.spec, self.after)
        if self._was_sent():
            here.update({key: each for key, each in self._begun(wanted) if key not in here})
        if self._runs():
            here = {key: each for key, each in here.items() if each.volume_id in wanted}
        return {key: self._moved_on(each) for key, each in here.items()}

    def _begun(self, wanted: Mapping[VolumeId, ManagedVolume]) -> list[tuple[Key, Attachment]]:
        return [
            (
                Key.attachment(self.placed.node_id, self.workload.id, id_),
                Attachment(
                    id_,
                    self.workload.id,
                    self.placed.node_id,
                    self.now,
                    self.now,
                    self.now,
                    driver=driver_name(volume.driver),
                    mount_path=volume.mount_path,
                    read_only=volume.read_only,
                ),
            )
            for id_, volume in wanted.items()
        ]

    def _moved_on(self, hold: Attachment) -> Attachment:
        call = self._delete_call()
        if call is not None:
            before = self.after.records.get(Key.status(self.workload.id))
            deletes = hold.deletes_data
            if not _is_same_call(call, before.value if before else None):
                deletes = deletes or _may_delete(hold, self.workload.uid, self.after)
            return _in_phase(hold, AttachmentPhase.DETACHING, self.now, deletes_data=deletes)
        if self._runs():
            return _in_phase(hold, AttachmentPhase.ATTACHED, self.now)
        if hold.phase is AttachmentPhase.ATTACHED:
            return hold
        error = storage_error(self.status)
        phase = AttachmentPhase.ERROR if error else AttachmentPhase.ATTACHING
        return _in_phase(hold, phase, self.now, error)

    def _was_sent(self) -> bool:
        """Whether this node was sent the present revision to run: another one has other volumes,
        and what was only told to rest there attaches nothing."""
        if self._runs():
            return True
        sent = self.status.reapply if self.status else None
        if sent is None or sent.last_apply_at is None or sent.last_apply_stops:
            return False
        mine = sent.last_apply_revision == self.workload.revision_id
        return mine and sent.last_apply_at >= self.placed.created_at

    def _runs(self) -> bool:
        seen = self.status.observed if self.status else None
        return (
            self.status is not None
            and seen is not None
            and self.status.status is WorkloadStatus.RUNNING
            and seen.node_id == self.placed.node_id
            and seen.revision_id == self.workload.revision_id
        )

    def _delete_call(self) -> Intent | None:
        wanted = self.workload.desired_state is DesiredState.DELETED
        return _delete_call(self.status) if wanted else None


def _leaving(hold: Attachment, grave: Tombstone, after: Outcome, now: datetime) -> Attachment:
    call = _delete_call(grave)
    before = after.records.get(Key.tombstone(grave.node_id, grave.workload_id))
    deletes = hold.deletes_data
    if call is not None and not _is_same_call(call, before.value if before else None):
        deletes = deletes or (grave.delete_volumes and _may_delete(hold, grave.uid, after))
    return _in_phase(hold, AttachmentPhase.DETACHING, now, deletes_data=deletes)


def _delete_call(record: Record | None) -> Intent | None:
    """The delete that an agent was told, if it was."""
    intent = record.intent if isinstance(record, StatusRecord | Tombstone) else None
    return intent if intent is not None and intent.action is IntentAction.DELETE else None


def _is_same_call(call: Intent, before: Record | None) -> bool:
    """Whether the call was announced by an earlier commit: whose data goes with it stands."""
    known = _delete_call(before)
    return known is not None and known.committed_at == call.committed_at


def _may_delete(hold: Attachment, uid: str, after: Outcome) -> bool:
    """Whether the data is nobody else's; ``uid`` is the life of the workload that is deleted."""
    volume = after.volume(hold.volume_id)
    if volume is None or volume.retain_policy is RetainPolicy.RETAIN or volume.standalone:
        return False
    return not _is_anothers(volume, hold.node_id, hold.workload_id, uid, after)


def _is_anothers(
    volume: Volume, node_id: NodeId, workload_id: str, uid: str, after: Outcome
) -> bool:
    """Whether what the volume keeps on this node is also used by another workload, or by a later
    life of this one."""
    users = set(volume.workload_refs) - {workload_id}
    successor = after.workload(workload_id)
    if successor is not None and successor.uid != uid:
        users |= {workload_id} if volume.id in volumes_wanted(successor.spec, after) else set()
    return any(_shares(volume, each, node_id, after) for each in users)


def _shares(volume: Volume, workload_id: str, node_id: NodeId, after: Outcome) -> bool:
    """Whether this workload has the same data: that of a local volume is each node's own."""
    return not is_local(volume.driver) or after.node_of(workload_id) == node_id


def _in_phase(
    hold: Attachment,
    phase: AttachmentPhase,
    now: datetime,
    error: str = "",
    *,
    deletes_data: bool = False,
) -> Attachment:
    if (hold.phase, hold.last_error, hold.deletes_data) == (phase, error, deletes_data):
        return hold
    since = hold.last_transition if hold.phase is phase else now
    return evolve(
        hold,
        phase=phase,
        last_error=error,
        deletes_data=deletes_data,
        last_transition=since,
        updated_at=now,
    )

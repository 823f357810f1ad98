"""Volumes follow their workloads: what each commit means for the records of the volumes it touches.

One rule for every commit, whoever makes it: the volumes' records are computed from the records of
the workload as the commit leaves them, and written with it. So no crash can fall in between, a
change of node is never mistaken for a release (defect A2), and whoever places a workload compares
every volume that it touches (architecture §3.2). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import cast

from attrs import evolve, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.spec import ManagedVolume
from persys_core.model.volume import (
    Attachment,
    AttachmentPhase,
    RetainPolicy,
    Volume,
    VolumeId,
    VolumePhase,
)
from persys_core.model.workload import Workload
from persys_core.placement.demand import driver_name
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, Kind, Versioned
from persys_core.volumes.claims import claim_after
from persys_core.volumes.disks import disk_ids_of, volumes_wanted
from persys_core.volumes.holds import holds_after, retain_policy, storage_error
from persys_core.volumes.outcome import Outcome, VolumeRecords
from persys_core.volumes.wishes import is_local

__all__ = ["followed", "with_volumes"]

_NEVER_CONFIRMED = (VolumePhase.PENDING, VolumePhase.PROVISIONING, VolumePhase.ERROR)


def with_volumes(tx: Transaction, records: VolumeRecords, now: datetime) -> Transaction:
    """``tx`` with what it means for the volumes of every workload that it writes about."""
    after = Outcome(records, tx)
    for workload_id in sorted(_workloads_in(tx)):
        if _has_volumes(workload_id, after):
            tx = followed(tx, records, workload_id, now)
    return tx


def _has_volumes(workload_id: WorkloadId, after: Outcome) -> bool:
    """Asked at every commit, and mostly false."""
    workload = after.workload(workload_id)
    if workload is not None and (workload.spec.managed_volumes or disk_ids_of(workload.spec)):
        return True
    records = after.records
    return bool(records.volumes_of(workload_id) or records.attachments_of(workload_id))


def _workloads_in(tx: Transaction) -> set[WorkloadId]:
    found = set()
    for write in tx.writes:
        match write.key.kind:
            case Kind.WORKLOAD | Kind.STATUS | Kind.ASSIGNMENT:
                found.add(write.key.id)
            case Kind.TOMBSTONE:
                found.add(write.key.id.partition("/")[2])
            case _:
                pass
    return found


def followed(
    tx: Transaction, records: VolumeRecords, workload_id: WorkloadId, now: datetime
) -> Transaction:
    """``tx`` with what it means for the volumes of one workload; itself where that has none."""
    after = Outcome(records, tx)
    workload = after.workload(workload_id)
    wanted = volumes_wanted(workload.spec, after) if workload else {}
    held = after.holds_of(workload_id)
    ids = {*wanted, *records.volumes_of(workload_id), *(each.volume_id for each in held.values())}
    if not ids:
        return tx
    tx = _with_records(tx, records, workload, wanted, now)
    holds = holds_after(workload_id, Outcome(records, tx), now)
    for key in sorted({*held, *holds}, key=lambda key: key.id):
        stored = cast("Versioned[Attachment] | None", records.get(key))
        hold = holds.get(key)
        tx = tx.put(key, hold, stored) if hold else tx.delete(key, stored)
    change = _Change(workload_id, workload, wanted, held, Outcome(records, tx), now, tx.forced)
    for id_ in sorted(ids):
        stored_volume = cast("Versioned[Volume] | None", records.get(Key.volume(id_)))
        volume = change.volume(id_)
        if volume is None:
            tx = tx.delete(Key.volume(id_), stored_volume)
        else:
            tx = tx.put(Key.volume(id_), volume, stored_volume)
            tx = _past_a_fence(tx, records, stored_volume, volume)
    return tx


def _past_a_fence(
    tx: Transaction, records: VolumeRecords, before: Versioned[Volume] | None, after: Volume
) -> Transaction:
    """A claim that goes to another node compares the node that it leaves: the first sign of life
    ends a fence, and whoever decided on the fence then loses."""
    old, new = before.value.claim if before else None, after.claim
    if old is None or new is None or old.node_id == new.node_id:
        return tx
    key = Key.node(old.node_id)
    return tx.expecting(key, records.get(key))


def _with_records(
    tx: Transaction,
    records: VolumeRecords,
    workload: Workload | None,
    wanted: Mapping[VolumeId, ManagedVolume],
    now: datetime,
) -> Transaction:
    """First every volume of the spec gets its record, so that what follows finds all of them."""
    after = Outcome(records, tx)
    for id_, wish in wanted.items():
        if workload is not None and after.volume(id_) is None:
            made = Volume(id_, wish.name.strip(), driver_name(wish.driver), now, now)
            stored = cast("Versioned[Volume] | None", records.get(Key.volume(id_)))
            tx = tx.put(Key.volume(id_), _as_wished(made, wish, sole=True), stored)
    return tx


def _as_wished(volume: Volume, wish: ManagedVolume, *, sole: bool) -> Volume:
    """The volume with what a spec says of it. Where others refer to it, too, nothing shrinks, and
    one *Retain* keeps the data of all."""
    if volume.standalone:
        return volume
    policy = retain_policy(wish)
    if not sole and volume.retain_policy is RetainPolicy.RETAIN:
        policy = RetainPolicy.RETAIN
    return evolve(
        volume,
        size_gb=wish.size_gb if sole else max(volume.size_gb, wish.size_gb),
        access_mode=wish.access_mode if sole else volume.access_mode or wish.access_mode,
        fs_type=wish.fs_type if sole else volume.fs_type or wish.fs_type,
        mount_path=wish.mount_path if sole else volume.mount_path,
        retain_policy=policy,
    )


@frozen
class _Change:
    """What one commit means for the volumes of one workload.

    ``held``: its attachments before. ``forced``: what ends was not confirmed by its node.
    """

    workload_id: WorkloadId
    workload: Workload | None
    wanted: Mapping[VolumeId, ManagedVolume]
    held: Mapping[Key, Attachment]
    after: Outcome
    now: datetime
    forced: bool

    def volume(self, id_: VolumeId) -> Volume | None:
        """The record of a volume afterwards; ``None`` where nothing of it is left."""
        volume = self.after.volume(id_)
        if volume is None:
            return None
        holds = tuple(self.after.holds_on(id_).values())
        refs = self._refs(volume, holds)
        if not refs and not holds and not volume.standalone and self._is_gone(volume):
            return None
        wish = self.wanted.get(id_)
        changed = _as_wished(volume, wish, sole=set(refs) <= {self.workload_id}) if wish else volume
        error = storage_error(self.after.status(self.workload_id)) if wish else ""
        changed = evolve(
            changed,
            workload_refs=refs,
            attached_nodes=tuple(sorted(set(self._attached(holds)))),
            phase=VolumePhase.ERROR if error else self._phase(changed, holds, refs),
            last_error=error,
            node_id=self._home(changed, holds),
            claim=claim_after(changed, self.workload, self.after, self.now),
        )
        if evolve(changed, updated_at=volume.updated_at) == volume and not self._holds_changed(id_):
            return volume
        return evolve(changed, updated_at=self.now)

    def _home(self, volume: Volume, holds: tuple[Attachment, ...]) -> NodeId:
        """Where a standalone disk's data is: a local one is made where it is first attached."""
        if volume.node_id or not volume.standalone or not is_local(volume.driver):
            return volume.node_id
        return holds[0].node_id if holds else ""

    def _refs(self, volume: Volume, holds: tuple[Attachment, ...]) -> tuple[WorkloadId, ...]:
        refs = set(volume.workload_refs) - {self.workload_id}
        holding = any(each.workload_id == self.workload_id for each in holds)
        if self.workload is not None and (volume.id in self.wanted or holding):
            refs.add(self.workload_id)
        return tuple(sorted(refs))

    def _is_gone(self, volume: Volume) -> bool:
        """Whether no data can be left: none was ever made, or it went with the workload."""
        ended = [each for each in self.held.values() if each.volume_id == volume.id]
        if volume.phase is VolumePhase.PENDING and not ended:
            return True
        if not ended:
            return False
        deleted = not self.forced and all(each.deletes_data for each in ended)
        left = is_local(volume.driver) and all(
            self.after.node(each.node_id) is None for each in ended
        )
        return deleted or left

    def _attached(self, holds: tuple[Attachment, ...]) -> Iterator[str]:
        for hold in holds:
            node = self.after.node(hold.node_id)
            leaves = hold.phase is AttachmentPhase.DETACHING
            if node is not None and not (leaves and node.fence is not None):
                yield hold.node_id

    def _phase(
        self, volume: Volume, holds: tuple[Attachment, ...], refs: tuple[WorkloadId, ...]
    ) -> VolumePhase:
        if not holds:
            return self._unattached(volume, refs)
        phases = {each.phase for each in holds}
        if all(each.deletes_data for each in holds):
            return VolumePhase.DELETING
        if AttachmentPhase.ATTACHED in phases:
            return VolumePhase.ATTACHED
        if volume.phase in _NEVER_CONFIRMED:
            return VolumePhase.PROVISIONING
        return VolumePhase.PROVISIONED

    def _unattached(self, volume: Volume, refs: tuple[WorkloadId, ...]) -> VolumePhase:
        if refs:
            unmade = volume.phase in _NEVER_CONFIRMED or volume.phase is VolumePhase.DELETING
            return VolumePhase.PENDING if unmade else VolumePhase.PROVISIONED
        if volume.standalone:
            return VolumePhase.AVAILABLE
        keeps = volume.retain_policy is RetainPolicy.RETAIN
        return VolumePhase.RETAINED if keeps else VolumePhase.RELEASED

    def _holds_changed(self, id_: VolumeId) -> bool:
        """Whoever uses a volume compares its record, so a change of its attachments shows there."""
        now = {k: v for k, v in self.after.holds_of(self.workload_id).items() if v.volume_id == id_}
        return now != {k: v for k, v in self.held.items() if v.volume_id == id_}

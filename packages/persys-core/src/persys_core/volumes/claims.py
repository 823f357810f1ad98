"""Who may write to an exclusive volume, and what a workload has to wait for (field report S02).

Decided here: whether a claim stands, when it passes to another node, and what stands in the way
of a placement. Silence is never a fence: a claim on a silent node stands until the node's agent
confirmed, an operator fenced the node or released the volume, or the node left the cluster. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from attrs import frozen

from persys_core.model.ids import NodeId
from persys_core.model.spec import ManagedVolume
from persys_core.model.volume import Volume, VolumeClaim
from persys_core.model.workload import Workload
from persys_core.placement.explain import ReasonCode
from persys_core.volumes.disks import missing_disks, volumes_wanted
from persys_core.volumes.outcome import Outcome
from persys_core.volumes.wishes import is_exclusive_volume, is_local

__all__ = [
    "NEXT_STEPS",
    "Hindrance",
    "claim_after",
    "claims_elsewhere",
    "held_here",
    "hindrance",
    "stands",
]


NEXT_STEPS: Mapping[ReasonCode, str] = {
    ReasonCode.VOLUME_HELD: "it goes on once the holder is deleted or moved, and its node confirmed"
    " that or was fenced (persysctl node fence)",
    ReasonCode.VOLUME_MISSING: "it goes on once the disk exists, or with another revision",
    ReasonCode.VOLUME_DELETING: "it goes on once the deletion is confirmed",
}
"""What ends a hindrance."""


_NAMED = 5


@frozen
class Hindrance:
    """Why a workload cannot have one of its volumes now."""

    code: ReasonCode
    text: str


def stands(volume: Volume, after: Outcome) -> VolumeClaim | None:
    """The volume's claim, if its holder may still write: it is assigned to that node, or was told
    to attach there and has not confirmed the end."""
    claim = volume.claim
    if claim is None or after.node(claim.node_id) is None:
        return None
    holder = after.workload(claim.workload_id)
    wants = holder is not None and volume.id in volumes_wanted(holder.spec, after)
    if wants and after.node_of(claim.workload_id) == claim.node_id:
        return claim
    attached = any(
        (each.workload_id, each.node_id) == (claim.workload_id, claim.node_id)
        for each in after.holds_on(volume.id).values()
    )
    return claim if attached else None


def claim_after(
    volume: Volume, workload: Workload | None, after: Outcome, now: datetime
) -> VolumeClaim | None:
    """The volume's claim once ``after`` holds; ``workload`` is the one that the change is of."""
    standing = stands(volume, after)
    if workload is None or not _writes(workload, volume, after):
        return standing
    node_id = after.node_of(workload.id)
    if not node_id or (standing and not _passes(standing, workload, node_id, after)):
        return standing
    before = (*volume.claim.passed_from, standing.node_id) if volume.claim and standing else ()
    past = {each.node_id for each in after.holds_on(volume.id).values()} & set(before)
    return VolumeClaim(
        workload.id, node_id, now, workload.uid, passed_from=tuple(sorted(past - {node_id}))
    )


def _passes(claim: VolumeClaim, workload: Workload, node_id: NodeId, after: Outcome) -> bool:
    """Whether a standing claim gives way to one of the workload on its present node."""
    same = (claim.workload_id, claim.node_id) == (workload.id, node_id)
    return not same and _gives_way(claim, workload, after)


def _gives_way(claim: VolumeClaim, workload: Workload, after: Outcome) -> bool:
    """Whether a standing claim keeps ``workload`` from nothing: an operator answers for its holder.

    A fence of the node does so for the holder itself, which moves with its claim, and for others
    once the holder belongs to that node no more (it was deleted, or is elsewhere).
    """
    if claim.released_at is not None:
        return True
    if not _is_fenced(claim, after):
        return False
    return claim.workload_id == workload.id or after.node_of(claim.workload_id) != claim.node_id


def claims_elsewhere(workload: Workload, node_id: NodeId, after: Outcome) -> Iterator[Hindrance]:
    """What keeps ``workload`` from being sent to ``node_id``: who else may write there."""
    yield from _others(workload, after)
    for volume, claim in _own(workload, after):
        if claim.node_id != node_id and not _is_fenced(claim, after):
            yield _held(volume, claim)


def held_here(workload: Workload, node_id: NodeId, after: Outcome) -> Hindrance | None:
    """What keeps ``workload`` from leaving the silent ``node_id``: a claim there, not fenced."""
    held = (
        _held(volume, claim)
        for volume, claim in _own(workload, after)
        if claim.node_id == node_id and not _is_fenced(claim, after)
    )
    return next(held, None)


def hindrance(
    workload: Workload, after: Outcome, is_ready: Callable[[NodeId], bool]
) -> Hindrance | None:
    """What keeps ``workload`` from being placed anywhere, or ``None``.

    ``is_ready``: whether a node answers. A claim of its own on such a node is no hindrance: the
    node gives the volume up, and the workload waits for that where it is placed.
    """
    for id_ in missing_disks(workload.spec, after):
        text = f"disk {id_} is not known; create it, or take it out of persys.disk.ids"
        return Hindrance(ReasonCode.VOLUME_MISSING, text)
    if unknown := _imported_holders(workload, after):
        return unknown
    for other in _others(workload, after):
        return other
    for volume, claim in _own(workload, after):
        silent = not is_ready(claim.node_id) and not _is_fenced(claim, after)
        if silent and after.node_of(workload.id) != claim.node_id:
            return _held(volume, claim)
    return next(_being_deleted(workload, after, is_ready), None)


def _imported_holders(workload: Workload, after: Outcome) -> Hindrance | None:
    """Work that was imported without its spec may write to any exclusive volume."""
    imported = after.records.imported() - {workload.id}
    if not imported:
        return None
    for id_, wanted in volumes_wanted(workload.spec, after).items():
        volume = after.volume(id_)
        claim = stands(volume, after) if volume else None
        mine = claim is not None and claim.workload_id == workload.id
        if is_exclusive_volume(wanted) and not mine:
            named = ", ".join(sorted(imported)[:_NAMED])
            more = ", …" if len(imported) > _NAMED else ""
            text = (
                f"volume {id_} may be in use by imported workloads whose volumes are not"
                f" known ({named}{more}); apply their specs, or delete them, first"
            )
            return Hindrance(ReasonCode.VOLUME_HELD, text)
    return None


def _own(workload: Workload, after: Outcome) -> Iterator[tuple[Volume, VolumeClaim]]:
    """The claims of the workload itself, wherever they are."""
    for volume, _ in _on_record(workload, after):
        claim = stands(volume, after)
        if claim is not None and claim.workload_id == workload.id:
            yield volume, claim


def _others(workload: Workload, after: Outcome) -> Iterator[Hindrance]:
    """Other workloads whose writing and this one's exclude each other.

    Who writes alone bears nobody else that writes, whatever access mode the other one asks for.
    """
    for volume, wanted in _on_record(workload, after):
        if wanted.read_only or is_local(wanted.driver):
            continue
        claim = stands(volume, after)
        other = claim is not None and claim.workload_id != workload.id
        if claim is not None and other and not _gives_way(claim, workload, after):
            yield _held_by_another(volume, claim)
        if is_exclusive_volume(wanted):
            yield from _shared_by(volume, workload, after)


def _shared_by(volume: Volume, workload: Workload, after: Outcome) -> Iterator[Hindrance]:
    claim = volume.claim
    for hold in after.holds_on(volume.id).values():
        released = (
            claim is not None
            and claim.released_at is not None
            and (claim.workload_id, claim.node_id) == (hold.workload_id, hold.node_id)
        )
        node = after.node(hold.node_id)
        fenced = node is not None and node.fence is not None
        answered = claim is not None and hold.node_id in claim.passed_from
        gone = (fenced or answered) and after.node_of(hold.workload_id) != hold.node_id
        writes = not hold.read_only and not released and not gone
        if hold.workload_id != workload.id and writes:
            text = (
                f"volume {volume.id} is attached for workload {hold.workload_id} on"
                f" {hold.node_id}; this workload wants to be the only one that writes to it"
            )
            yield Hindrance(ReasonCode.VOLUME_HELD, text)


def _on_record(workload: Workload, after: Outcome) -> Iterator[tuple[Volume, ManagedVolume]]:
    for id_, wanted in volumes_wanted(workload.spec, after).items():
        volume = after.volume(id_)
        if volume is not None:
            yield volume, wanted


def _being_deleted(
    workload: Workload, after: Outcome, is_ready: Callable[[NodeId], bool]
) -> Iterator[Hindrance]:
    """Data that an agent was told to remove: what is put there now would go with it."""
    for id_ in volumes_wanted(workload.spec, after):
        for hold in after.holds_on(id_).values():
            if hold.deletes_data and (not is_local(hold.driver) or is_ready(hold.node_id)):
                text = (
                    f"volume {id_} is being deleted with workload {hold.workload_id} on"
                    f" {hold.node_id}, which has not confirmed"
                )
                yield Hindrance(ReasonCode.VOLUME_DELETING, text)


def _held(volume: Volume, claim: VolumeClaim) -> Hindrance:
    text = f"volume {volume.id} held by {claim.node_id} since {_instant(claim.since)}, not fenced"
    return Hindrance(ReasonCode.VOLUME_HELD, text)


def _held_by_another(volume: Volume, claim: VolumeClaim) -> Hindrance:
    text = (
        f"volume {volume.id} held by workload {claim.workload_id} on {claim.node_id} since"
        f" {_instant(claim.since)}; one workload at a time may write to it"
    )
    return Hindrance(ReasonCode.VOLUME_HELD, text)


def _writes(workload: Workload, volume: Volume, after: Outcome) -> bool:
    wanted = volumes_wanted(workload.spec, after).get(volume.id)
    return wanted is not None and is_exclusive_volume(wanted)


def _is_fenced(claim: VolumeClaim, after: Outcome) -> bool:
    """Whether somebody answers for it that the holder writes no more."""
    node = after.node(claim.node_id)
    return claim.released_at is not None or (node is not None and node.fence is not None)


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="seconds")

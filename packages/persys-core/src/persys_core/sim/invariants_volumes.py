"""Rule 2 for data: one node at a time writes to an exclusive volume; and records follow workloads.

Decided here: what counts as a second writer. A tombstone is no excuse, as it is for two copies of
a workload without such a volume: the old copy must really be gone, or its node be fenced.
"""

from __future__ import annotations

from collections.abc import Iterator

from persys_core.control.view import ClusterView
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.volume import Attachment, AttachmentPhase, Volume, VolumeId
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, Kind
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.sim.mirror import Step
from persys_core.volumes.following import followed
from persys_core.volumes.wishes import is_exclusive_volume, wanted_volumes

__all__ = ["attachments", "note_fences", "one_writer", "volumes_in_step"]


def one_writer(scene: Scene, started_on: NodeId, workload_id: WorkloadId) -> Iterator[Finding]:
    """Judged on the machines, whenever something starts there."""
    for id_ in sorted(_exclusive(scene, workload_id)):
        writers = {
            (node, other)
            for node, running in scene.running.items()
            for other in running
            if id_ in _written(scene, node, other) and not _is_excused(scene, node, other, id_)
        }
        if len({node for node, _ in writers}) > 1:
            named = ", ".join(f"{other} on {node}" for node, other in sorted(writers))
            yield Finding(
                Rule.ONE_COPY,
                f"started on {started_on}, and {id_} is written to by {named}",
                (workload_id, *sorted({node for node, _ in writers})),
            )


def attachments(scene: Scene, step: Step) -> Iterator[Finding]:
    """Judged in the store: an exclusive volume is being attached on one node at a time."""
    for change in step.touched:
        if change.key.kind is Kind.ATTACHMENT and isinstance(change.after, Attachment):
            yield from _one_attachment(scene, change.after)


def volumes_in_step(scene: Scene) -> Iterator[Finding]:
    """Judged at rest: every volume's record is what its workload's records say."""
    view = ClusterView()
    view.load(scene.mirror.snapshot())
    workloads = set(view.all(Kind.WORKLOAD))
    workloads.update(ref for each in view.values(Kind.VOLUME, Volume) for ref in each.workload_refs)
    workloads.update(each.workload_id for each in view.values(Kind.ATTACHMENT, Attachment))
    for workload_id in sorted(workloads):
        for write in followed(Transaction(), view, workload_id, scene.now()).writes:
            yield Finding(
                Rule.LEDGER, f"{write.key} is not what follows from {workload_id}", (workload_id,)
            )


def _one_attachment(scene: Scene, changed: Attachment) -> Iterator[Finding]:
    stored = scene.mirror.get(Key.volume(changed.volume_id))
    if stored is None or not isinstance(stored.value, Volume) or stored.value.claim is None:
        return
    held = {
        each.node_id
        for each in scene.mirror.values(Kind.ATTACHMENT, Attachment)
        if each.volume_id == changed.volume_id
        and each.phase in (AttachmentPhase.ATTACHING, AttachmentPhase.ATTACHED)
    }
    if len(held) > 1:
        yield Finding(
            Rule.ONE_COPY,
            f"{changed.volume_id} is attached on {', '.join(sorted(held))} at once",
            (changed.workload_id, *sorted(held)),
        )


def _exclusive(scene: Scene, workload_id: WorkloadId) -> set[VolumeId]:
    workload = scene.mirror.workload(workload_id)
    wanted = wanted_volumes(workload.spec) if workload else {}
    return {id_ for id_, volume in wanted.items() if is_exclusive_volume(volume)}


def _written(scene: Scene, node_id: NodeId, workload_id: WorkloadId) -> set[VolumeId]:
    """What a copy writes to; one of an earlier life may have other volumes than the present one."""
    spec = scene.spec_on(node_id, workload_id)
    if spec is None:
        return _exclusive(scene, workload_id)
    return {id_ for id_, volume in wanted_volumes(spec).items() if is_exclusive_volume(volume)}


def note_fences(scene: Scene, step: Step) -> None:
    """Take down whose claims went elsewhere past a fence, until the old hold is confirmed over."""
    for change in step.touched:
        before, after = change.before, change.after
        if isinstance(before, Volume) and before.claim is not None:
            node = scene.mirror.node(before.claim.node_id)
            now = after.claim if isinstance(after, Volume) else None
            passed = now is not None and now.node_id != before.claim.node_id
            if passed and node is not None and node.fence is not None:
                scene.fenced_off.add((node.id, before.id))
        if isinstance(before, Attachment) and after is None:
            scene.fenced_off.discard((before.node_id, before.volume_id))


def _is_excused(
    scene: Scene, node_id: NodeId, workload_id: WorkloadId, volume_id: VolumeId
) -> bool:
    """What a user, an operator or a stray message answers for."""
    node = scene.mirror.node(node_id)
    gone = node is None or node.fence is not None or (node_id, volume_id) in scene.fenced_off
    return gone or scene.wishes.was_forced(workload_id) or (node_id, workload_id) in scene.strays

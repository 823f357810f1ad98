"""What another scheduler's records of one workload become when its store is taken over.

Decided here: where the workload belongs, what it is charged with there, and what is restored from
beside its spec. Nothing here makes a new revision, so what runs is not sent again. Pure.

* It belongs to the node that its status names: the other scheduler decides by that, and writes the
  assignment after it. Without one the assignment counts.
* It is charged there whether or not there is room: a node that comes out above its capacity gets
  nothing new and loses nothing. What is Completed is charged with nothing, and so is what belongs
  to a node that is not known.
* Its agent is asked before anything is sent, as after an import.
* Managed volumes that fell out of a spec (reference defect A1) are those that it has attached.
* Metadata of the user that was kept beside the status returns to the spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import evolve, frozen

from persys_core.model.ids import NodeId
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ManagedVolume, WorkloadSpec
from persys_core.model.states import WorkloadStatus
from persys_core.model.volume import Attachment, Volume
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.reconcile import transitions
from persys_core.volumes.affinity import has_local_data

__all__ = ["Held", "TakenOver", "assignment_of", "home_of", "is_of_another", "taken_over"]

Held = tuple[Attachment, Volume]
"""A volume, and the hold that a workload has on it."""


@frozen
class TakenOver:
    """The records of a workload as they are from now on."""

    workload: Workload
    status: StatusRecord


def is_of_another(workload: Workload) -> bool:
    """Whether another scheduler wrote it: ours give each life of an id a ``uid``."""
    return not workload.uid


def home_of(status: StatusRecord | None, assignment: Assignment | None) -> NodeId:
    """The node that the workload belongs to; empty where there is none."""
    named = status.observed.node_id if status else ""
    return named or (assignment.node_id if assignment else "")


def taken_over(
    workload: Workload,
    status: StatusRecord | None,
    home: NodeId,
    held: Sequence[Held],
    now: datetime,
) -> TakenOver:
    """The wish and the status; the same as before where there is nothing to be said."""
    spec = _with_volumes(workload.spec, held)
    if status is not None and status.user_metadata:
        spec = evolve(spec, metadata={**status.user_metadata, **spec.metadata})
    whole = workload if spec == workload.spec else evolve(workload, spec=spec)
    if status is None:
        status = transitions.created(whole, now)
    status = evolve(status, user_metadata={})
    if home and status.reapply.last_apply_at is None:
        status = evolve(
            status,
            reapply=evolve(
                status.reapply, last_apply_at=now, last_apply_revision=workload.revision_id
            ),
            data_node_id=home if has_local_data(spec) else "",
            updated_at=now,
        )
    return TakenOver(whole, status)


def assignment_of(
    taken: TakenOver,
    home: NodeId,
    charge: Resources | None,
    stored: Assignment | None,
    now: datetime,
) -> Assignment:
    """Its assignment to ``home``; ``charge`` is ``None`` for a node that is not known.

    What is dated later than ``now`` (another clock) would make every report look older than it.
    """
    workload = taken.workload
    same = stored if stored is not None and stored.node_id == home else None
    rests = charge is None or taken.status.status is WorkloadStatus.COMPLETED
    return Assignment(
        workload_id=workload.id,
        uid=workload.uid,
        node_id=home,
        charged=Resources() if charge is None or rests else charge,
        reason=(same.reason if same else "") or "taken over where it is",
        created_at=min(same.created_at if same else workload.created_at, now),
        released=rests,
    )


def _with_volumes(spec: WorkloadSpec, held: Sequence[Held]) -> WorkloadSpec:
    if isinstance(spec.body, ComposeSpec) or spec.managed_volumes:
        return spec
    volumes = tuple(_wish(*each) for each in held if not each[1].standalone)
    return evolve(spec, body=evolve(spec.body, managed_volumes=volumes)) if volumes else spec


def _wish(attachment: Attachment, volume: Volume) -> ManagedVolume:
    return ManagedVolume(
        name=volume.name,
        driver=volume.driver,
        size_gb=volume.size_gb,
        access_mode=volume.access_mode,
        fs_type=volume.fs_type,
        mount_path=attachment.mount_path,
        read_only=attachment.read_only,
        retain_policy=volume.retain_policy.value,
    )

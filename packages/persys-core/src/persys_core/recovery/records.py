"""The records that an import writes for one workload.

Decided here: what a record says where its spec is not known. It carries the agent's revision, so
that the spec, once its user applies it again, is recognised as the one that runs and nothing is
restarted. It asks for no resources, since nobody knows what it was given.
"""

from __future__ import annotations

from datetime import datetime

from attrs import evolve, frozen

from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ContainerSpec, SpecBody, VmSpec, WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.model.workload import Assignment, Imported, StatusRecord, Workload
from persys_core.reconcile import transitions
from persys_core.reconcile.observe import observe_report
from persys_core.reconcile.situation import Seen
from persys_core.recovery.plan import ImportItem

__all__ = ["ImportedRecords", "records_of"]


@frozen
class ImportedRecords:
    """``ended`` is the assignment of what ended and holds no share; else it is charged anew."""

    workload: Workload
    status: StatusRecord
    ended: Assignment | None = None


def records_of(item: ImportItem, uid: str, now: datetime) -> ImportedRecords:
    """The records of ``item``, which is to be imported; ``uid`` is for one that is not known."""
    if item.restores_spec:
        return _restored(item, now)
    workload = _watched(item, uid, now)
    seen = Seen(observe_report(item.report, workload, now), now, by_query=False)
    known = item.recorded.status
    before = known if known is not None else transitions.created(workload, now)
    status = evolve(
        transitions.noted(before, seen, item.node_id, now),
        last_action="Imported",
        data_node_id=item.node_id,
    )
    return ImportedRecords(workload, _as_sent(status, workload, now))


def _restored(item: ImportItem, now: datetime) -> ImportedRecords:
    """The record is whole; what was open at the time is not open any more."""
    workload, held = item.recorded.workload, item.recorded.assignment
    assert workload is not None, "this is a bug: a spec is restored from a record"
    status = item.recorded.status
    if status is None or held is None:
        status = transitions.assigned(status or transitions.created(workload, now), now)
    status = _as_sent(evolve(status, intent=None, updated_at=now), workload, now)
    return ImportedRecords(workload, status, held if held is not None and held.released else None)


def _as_sent(status: StatusRecord, workload: Workload, now: datetime) -> StatusRecord:
    """The node has it: before anything is sent there, its agent is asked."""
    sent = evolve(
        status.reapply, last_apply_at=now, last_apply_revision=workload.revision_id, next_at=None
    )
    return evolve(status, reapply=sent)


def _watched(item: ImportItem, uid: str, now: datetime) -> Workload:
    report, known = item.report, item.recorded.workload
    imported = Imported(item.node_id, now)
    if known is not None:
        return evolve(known, revision_id=report.revision_id, updated_at=now, imported=imported)
    assert report.type is not None, "this is a bug: the plan imports nothing without a type"
    return Workload(
        id=report.workload_id,
        uid=uid,
        spec=WorkloadSpec(report.type, Resources(), _unknown_body(report.type, report)),
        revision_id=report.revision_id,
        desired_state=_desired(report),
        created_at=report.created_at or now,
        updated_at=now,
        imported=imported,
    )


def _unknown_body(kind: WorkloadType, report: AgentReport) -> SpecBody:
    """What stands for the body; an agent tells the image of a container, and no more."""
    match kind:
        case WorkloadType.CONTAINER:
            return ContainerSpec(report.metadata.get("container.image", ""))
        case WorkloadType.COMPOSE:
            return ComposeSpec()
        case WorkloadType.VM | WorkloadType.MICROVM:
            return VmSpec(vcpus=0, memory_mb=0)


def _desired(report: AgentReport) -> DesiredState:
    if report.desired_state in (DesiredState.RUNNING, DesiredState.STOPPED):
        return report.desired_state
    rests = report.state is AgentState.STOPPED
    return DesiredState.STOPPED if rests else DesiredState.RUNNING

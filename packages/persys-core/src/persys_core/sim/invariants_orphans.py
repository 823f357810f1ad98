"""Rules 7 and 8 about orphans: what a policy may delete, and that nothing is overlooked.

An orphan is a workload that a machine has and that is neither assigned to its node nor owed there.
Judged by what machines run and nodes said, apart from the scheduler's own notes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from persys_core.drift.remedy import LISTINGS_TO_DELETE
from persys_core.model.cluster import ClusterMarker
from persys_core.model.drift import DriftRecord, DriftType, OrphanPolicy
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import Assignment, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import Key, Kind
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.sim.invariants_liveness import is_restless
from persys_core.volumes.affinity import has_local_data

__all__ = ["is_orphan_to_delete", "orphans_left"]

_HEARD_OF_LATER = timedelta(seconds=30)
"""How old the scheduler's word of a copy may be: between two listings, or one lease."""


def is_orphan_to_delete(scene: Scene, at: datetime, grave: Tombstone) -> bool:
    """Whether the policy ``delete`` may take it from that node: it was said to be there in three
    full listings in a row, it was never charged for there, and no user would miss it."""
    sighted = scene.listings.get(grave.node_id, {}).get(grave.workload_id, 0)
    return (
        scene.config.orphan_policy is OrphanPolicy.DELETE
        and sighted >= LISTINGS_TO_DELETE
        and grave.held == Resources()
        and not grave.shares
        and not grave.delete_volumes
        and _is_superfluous(scene, at, grave.node_id, grave.workload_id)
    )


def orphans_left(
    scene: Scene, reported: Iterable[tuple[NodeId, WorkloadId, datetime]]
) -> Iterator[Finding]:
    """Rule 8, once everything is settled: every orphan is told of, none is left that the policy
    deletes, and no drift stands in the store that is not there any more.

    ``reported``: what every agent has, and since when. What is older than the cluster's records
    may have to be imported.
    """
    mirror = scene.mirror
    there = {
        (node_id, workload_id): since
        for node_id, workload_id, since in reported
        if not mirror.is_assigned(workload_id, node_id)
        and mirror.tombstone(node_id, workload_id) is None
    }
    told = {
        (record.node_id, record.workload_id)
        for record in mirror.values(Kind.DRIFT, DriftRecord)
        if record.drift_type == DriftType.ORPHAN_ON_AGENT
    }
    for pair in sorted(there.keys() - told):
        yield _finding("it is there, neither assigned nor owed, and no drift tells of it", pair)
    for pair in sorted(told - there.keys()):
        yield _finding("a drift tells of it, and it is not there or is assigned", pair)
    if scene.config.orphan_policy is not OrphanPolicy.DELETE:
        return
    for pair, since in sorted(there.items()):
        if not _is_older_than_the_records(scene, since) and _is_superfluous(
            scene, scene.now(), *pair
        ):
            yield _finding("the policy is to delete it, and it is still there", pair)


def _is_older_than_the_records(scene: Scene, since: datetime) -> bool:
    marker = scene.mirror.get(Key.marker())
    if marker is None or not isinstance(marker.value, ClusterMarker):
        return True
    return since <= marker.value.began_by


def _finding(text: str, pair: tuple[NodeId, WorkloadId]) -> Finding:
    node_id, workload_id = pair
    return Finding(Rule.LIVENESS, f"orphan on {node_id}: {text}", (workload_id, node_id))


def _is_superfluous(scene: Scene, at: datetime, node_id: NodeId, workload_id: WorkloadId) -> bool:
    """Nobody wants the copy on this node: no user knows it, or a sound one is where it belongs."""
    workload, assignment = scene.mirror.workload(workload_id), scene.mirror.assignment(workload_id)
    if workload is None or workload.desired_state is DesiredState.DELETED:
        return True
    status = scene.mirror.status(workload_id)
    if assignment is None or assignment.node_id == node_id or status is None:
        return False
    data_is_here = status.data_node_id == node_id and has_local_data(workload.spec)
    return not data_is_here and _is_sound(scene, at, workload, status, assignment)


def _waits_for_a_node(status: StatusRecord, assignment: Assignment) -> bool:
    """It was given up, is wished anew, and has found no node yet: nothing of it is sound."""
    return assignment.released and status.status is WorkloadStatus.PENDING


def _is_sound(
    scene: Scene, at: datetime, workload: Workload, status: StatusRecord, assignment: Assignment
) -> bool:
    """Whether the assigned copy does what is wished of it, or did when it was last heard of."""
    silent_since = scene.liveness.expired_since(assignment.node_id)
    if silent_since is not None and at - silent_since > _HEARD_OF_LATER:
        return False
    if assignment.released or workload.desired_state is DesiredState.STOPPED:
        return not status.retry.exhausted and not _waits_for_a_node(status, assignment)
    running = scene.running.get(assignment.node_id, {}).get(workload.id)
    if running == workload.revision_id or is_restless(workload):
        return True
    ended_at = scene.ended_at.get((assignment.node_id, workload.id))
    return ended_at is not None and at - ended_at <= _HEARD_OF_LATER

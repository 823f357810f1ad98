"""Rule 8: once faults end, observed becomes equal to desired, wherever capacity allows.

Decided here, exactly: what counts as settled, and how long what is not settled may take. A workload
may be unsettled while its agent is at work on it, or while one of its own timers runs:

* the next retry, or the guard of a re-apply;
* the deadline of an open call, or the time for which an agent that did not answer is left alone;
* the time of its type to start, or the time of a delete to take effect;

and for three reconcile intervals after the last of these. What was given up for good is settled
once it rests. What waits for a node is settled as long as no node could take it (``feasibility``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from attrs import define, field, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadStatus
from persys_core.model.workload import Assignment, IntentAction, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import Kind
from persys_core.reconcile.situation import Outlook, outlook_of
from persys_core.sim.agent_behaviour import image_names
from persys_core.sim.feasibility import Feasibility
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.volumes.affinity import has_local_data
from persys_core.volumes.wishes import is_exclusive_volume

__all__ = ["Overdue", "Unsettled", "is_restless", "may_end", "unsettled"]

_RESTLESS_IMAGES = ("crash", "exit0", "job")
_RESTARTED_BY_AGENT = (RestartPolicy.ALWAYS, RestartPolicy.UNLESS_STOPPED, RestartPolicy.ON_FAILURE)


@frozen
class Unsettled:
    """A workload, or an owed delete, that is not as wished: why, and until when it may be so."""

    workload_id: WorkloadId
    node_id: NodeId
    what: str
    busy_until: datetime | None

    @property
    def key(self) -> tuple[WorkloadId, NodeId, bool]:
        return self.workload_id, self.node_id, self.what.startswith("owed")


def unsettled(scene: Scene) -> Iterator[Unsettled]:
    """Everything that is not as wished now."""
    feasible = Feasibility(scene.mirror)
    for workload in scene.mirror.values(Kind.WORKLOAD, Workload):
        status = scene.mirror.status(workload.id)
        assignment = scene.mirror.assignment(workload.id)
        node_id = assignment.node_id if assignment else ""
        if status is None:
            yield Unsettled(workload.id, node_id, "it has no status", None)
        elif what := _difference(scene, feasible, workload, status, assignment):
            yield Unsettled(workload.id, node_id, what, _busy_until(scene, workload, status))
    for grave in scene.mirror.values(Kind.TOMBSTONE, Tombstone):
        if _keeps_the_healthy_copy(scene, grave):
            continue
        yield Unsettled(
            grave.workload_id, grave.node_id, "owed delete is not done", _grave_until(scene, grave)
        )


def _keeps_the_healthy_copy(scene: Scene, grave: Tombstone) -> bool:
    """A start-first move: the old copy stays until the new one runs, which is judged by itself."""
    workload = scene.mirror.workload(grave.workload_id)
    status = scene.mirror.status(grave.workload_id)
    if not grave.after_healthy or workload is None or status is None or workload.uid != grave.uid:
        return False
    assignment = scene.mirror.assignment(workload.id)
    node_id = assignment.node_id if assignment else ""
    grows = status.waits_to_grow and workload.id in scene.running.get(node_id, {})
    runs = status.status is WorkloadStatus.RUNNING or grows
    return not runs and outlook_of(workload, status) is Outlook.RUN


def may_end(workload: Workload, status: StatusRecord) -> bool:
    """Whether it may end by itself any moment, so that something is written about it."""
    return outlook_of(workload, status) is Outlook.RUN and _ends(workload)


def is_restless(workload: Workload) -> bool:
    """Whether it ends again and again and is started again each time, so never comes to rest.

    Projects and machines have no restart policy, and their end does not say whether it was one in
    failure: they are started anew whenever they are found stopped.
    """
    return _ends(workload) and workload.spec.restart_policy in (*_RESTARTED_BY_AGENT, None)


def _ends(workload: Workload) -> bool:
    images = " ".join(image_names(workload.spec))
    return any(word in images for word in _RESTLESS_IMAGES)


@define(eq=False)
class Overdue:
    """Keeps for how long each thing has been unsettled, and tells what may be so no longer.

    ``at_work``: until when the agent of a node was at work on a workload: now, while it is.
    """

    scene: Scene
    grace: timedelta
    at_work: Callable[[NodeId, WorkloadId], datetime | None]
    _excused: dict[tuple[WorkloadId, NodeId, bool], datetime] = field(factory=dict)

    def look(self) -> tuple[int, list[Finding]]:
        """How much is unsettled now, and what is overdue."""
        now = self.scene.now()
        found = list(unsettled(self.scene))
        excused = {each.key: self._until(each, now) for each in found}
        self._excused = excused
        overdue = [each for each in found if now > excused[each.key] + self.grace]
        return len(found), [self._finding(each, excused[each.key]) for each in overdue]

    def all(self, text: str) -> list[Finding]:
        """Everything that is unsettled now, as findings."""
        return [
            Finding(Rule.LIVENESS, f"{text}: {each.what}", (each.workload_id,))
            for each in unsettled(self.scene)
        ]

    def _until(self, each: Unsettled, now: datetime) -> datetime:
        known = self._excused.get(each.key, now)
        worked = self.at_work(each.node_id, each.workload_id) if each.node_id else None
        ends = (min(end, now) for end in (each.busy_until, worked) if end is not None)
        return max((known, *ends))

    def _finding(self, each: Unsettled, until: datetime) -> Finding:
        return Finding(
            Rule.LIVENESS,
            f"{each.what}; nothing it waits for is open since {until:%H:%M:%S}",
            (each.workload_id, each.node_id) if each.node_id else (each.workload_id,),
        )


def _difference(
    scene: Scene,
    feasible: Feasibility,
    workload: Workload,
    status: StatusRecord,
    assignment: Assignment | None,
) -> str:
    """How what is observed differs from what is wished; empty where it does not."""
    match outlook_of(workload, status):
        case Outlook.DELETE:
            return "it is not deleted"
        case Outlook.WATCHED:
            return ""
        case Outlook.STOP | Outlook.COMPLETED | Outlook.HALTED:
            return _not_at_rest(scene, workload, status, assignment)
        case Outlook.RUN:
            if assignment is None and _runs_unrecorded(scene, workload):
                return ""
            if assignment is None or assignment.released:
                free = sorted(feasible.nodes_for(workload, status))
                return f"it waits although {', '.join(free[:3])} could take it" if free else ""
            return _not_running(scene, feasible, workload, status, assignment)


def _runs_unrecorded(scene: Scene, workload: Workload) -> bool:
    """A copy that nobody recorded runs where it cannot be taken over: starting another one would
    run it twice, so an operator has to decide (its reason says so)."""
    return any(
        scene.mirror.tombstone(node_id, workload.id) is None
        for node_id in scene.runs_on(workload.id)
    )


def _not_at_rest(
    scene: Scene, workload: Workload, status: StatusRecord, assignment: Assignment | None
) -> str:
    if assignment is not None and workload.id in scene.running.get(assignment.node_id, {}):
        return f"it is to rest and runs on {assignment.node_id}"
    stopped = workload.desired_state is DesiredState.STOPPED
    if stopped and status.status is not WorkloadStatus.STOPPED:
        return f"it rests and its status is {status.status}"
    return "a call about it is open" if status.intent is not None else ""


def _not_running(
    scene: Scene,
    feasible: Feasibility,
    workload: Workload,
    status: StatusRecord,
    assignment: Assignment,
) -> str:
    if status.waits_to_grow:
        return _not_growing(scene, feasible, workload, status, assignment)
    if _waits_for_an_old_copy(scene, workload, assignment):
        return ""
    if scene.running.get(assignment.node_id, {}).get(workload.id) != workload.revision_id:
        if feasible.lacks_a_volume(workload):
            return ""
        return "" if _is_between_runs(workload, status) else f"it does not run: {status.status}"
    if status.status is not WorkloadStatus.RUNNING or status.intent is not None:
        return f"it runs and its status is {status.status}"
    return ""


def _waits_for_an_old_copy(scene: Scene, workload: Workload, assignment: Assignment) -> bool:
    """It may not run twice; the delete that is owed elsewhere is judged by itself."""
    return any(map(is_exclusive_volume, workload.spec.managed_volumes)) and any(
        grave.workload_id == workload.id and grave.node_id != assignment.node_id
        for grave in scene.mirror.values(Kind.TOMBSTONE, Tombstone)
    )


def _not_growing(
    scene: Scene,
    feasible: Feasibility,
    workload: Workload,
    status: StatusRecord,
    assignment: Assignment,
) -> str:
    """The old revision goes on while its node has no room for the new one. Where it does not, only
    its data may keep the workload there."""
    node_id = assignment.node_id
    if feasible.can_grow(workload, assignment):
        return f"it waits to grow although {node_id} has room"
    pinned = status.data_node_id == node_id and has_local_data(workload.spec)
    if not pinned and scene.is_at_rest(node_id, workload.id):
        return f"it waits to grow, and nothing of it runs on {node_id}"
    return ""


def _is_between_runs(workload: Workload, status: StatusRecord) -> bool:
    return is_restless(workload) and status.status is WorkloadStatus.RUNNING


def _busy_until(scene: Scene, workload: Workload, status: StatusRecord) -> datetime | None:
    assignment = scene.mirror.assignment(workload.id)
    timers = [status.retry.next_at, status.reapply.next_at, *_call_timers(scene, status)]
    if assignment is not None:
        timers.append(scene.left_alone_until(assignment.node_id))
    sent = status.reapply.last_apply_at
    if sent is not None and status.status in (WorkloadStatus.SCHEDULED, WorkloadStatus.UPDATING):
        timers.append(sent + scene.config.apply_timeout(workload.spec.type))
    return max((timer for timer in timers if timer is not None), default=None)


def _call_timers(scene: Scene, status: StatusRecord) -> Iterator[datetime]:
    intent = status.intent
    if intent is None:
        return
    yield intent.deadline
    if intent.action is IntentAction.DELETE:
        yield intent.committed_at + scene.config.timing.delete_timeout


def _grave_until(scene: Scene, grave: Tombstone) -> datetime | None:
    timers = [scene.left_alone_until(grave.node_id)]
    if grave.intent is not None:
        timers.append(grave.intent.deadline)
        timers.append(grave.intent.committed_at + scene.config.timing.delete_timeout)
    return max((timer for timer in timers if timer is not None), default=None)

"""Explaining what has a node: whether it runs there, waits there, must leave, or cannot.

Decided here: only words, and in which order the causes are looked at. The causes are those of the
decision table (``reconcile.decide``), read from the same facts.
"""

from __future__ import annotations

from attrs import evolve, frozen

from persys_core.control.node_views import NodeViews
from persys_core.control.placing import GROWS_NEXT, Placing
from persys_core.control.view import ClusterView
from persys_core.model.event import capped
from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.nodes.leaving import Leaving, NodeLoad, leaving_of
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.explain import Explanation, ReasonCode, ReasonTally, Verdict
from persys_core.placement.mismatch import HOW_TO_MOVE, mismatch
from persys_core.ports.clock import Clock
from persys_core.volumes.affinity import has_local_data
from persys_core.volumes.claims import NEXT_STEPS, held_here
from persys_core.volumes.disks import local_disk_node
from persys_core.volumes.outcome import Outcome

__all__ = ["ExplainingPlaced"]

_NEXT_STEPS = {
    WorkloadStatus.SCHEDULED: "the node's agent is starting it",
    WorkloadStatus.UPDATING: "the new revision is being sent to the node's agent",
    WorkloadStatus.RUNNING: "nothing: it runs as wished",
}
_DISCARD = (
    "a retry that discards its local data (persysctl retry workload --discard-local) starts it"
    " elsewhere without"
)
_FENCE = (
    "it goes on when its node is back; a fence of the node (persysctl node fence), once it is"
    " really cut off, lets it start elsewhere"
)


@frozen
class ExplainingPlaced:
    """Explains the workloads of one view that have a node and are to run."""

    _view: ClusterView
    _placing: Placing
    _node_views: NodeViews
    _clock: Clock

    def explain(
        self, workload: Workload, status: StatusRecord, assignment: Assignment
    ) -> Explanation:
        """Why it is there, and what happens next."""
        node = self._view.node(assignment.node_id)
        if node is None:
            text = f"node {assignment.node_id} left the cluster"
            return Explanation(
                Verdict.MOVING, text, assignment.node_id, next_step="it is placed elsewhere at once"
            )
        if self._node_views.condition(assignment.node_id) is not NodeCondition.READY:
            return self._on_silent_node(workload, status, assignment)
        return (
            self._leaving(workload, status, node.value)
            or _waiting(status, assignment)
            or self._arriving(workload, status, assignment)
            or _there(workload, status, assignment, node.value)
        )

    # The node is silent

    def _on_silent_node(
        self, workload: Workload, status: StatusRecord, assignment: Assignment
    ) -> Explanation:
        node_id = assignment.node_id
        if self._has_data_on(workload, status, node_id):
            text = f"local volume data is on {node_id} (NotReady)"
            return _because(
                Verdict.PINNED, ReasonCode.LOCAL_DATA, text, node_id,
                f"it goes on when its node is back; {_DISCARD}",
            )  # fmt: skip
        if held := held_here(workload, node_id, Outcome(self._view)):
            return _because(Verdict.PINNED, held.code, held.text, node_id, _FENCE)
        return self._blocked_on_lost_node(workload, status, node_id) or Explanation(
            Verdict.MOVING,
            capped(f"node {node_id}: {self._node_views.health(node_id).reason}"),
            node_id,
            next_step="it goes on there if the node comes back; else it moves when its node's turn"
            " comes, one lost node at a time",
        )

    def _blocked_on_lost_node(
        self, workload: Workload, status: StatusRecord, node_id: NodeId
    ) -> Explanation | None:
        """Its turn came, and no other node took it."""
        if status.status is not WorkloadStatus.PENDING:
            return None
        blocked = self._placing.explain_leaving(workload, status)
        if blocked is None:
            return None
        why = f"node {node_id}: {self._node_views.health(node_id).reason}"
        return evolve(
            blocked,
            verdict=Verdict.UNSCHEDULABLE,
            summary=capped(f"{why}; no other node takes it: {blocked.summary}"),
            node_id=node_id,
            next_step="it goes on there if the node comes back, or elsewhere once a node takes it",
        )

    def _has_data_on(self, workload: Workload, status: StatusRecord, node_id: NodeId) -> bool:
        here = status.data_node_id == node_id and has_local_data(workload.spec)
        return here or local_disk_node(workload.spec, Outcome(self._view)) == node_id

    # The node is to be left

    def _leaving(self, workload: Workload, status: StatusRecord, node: Node) -> Explanation | None:
        leaving = leaving_of(node, workload.spec, NodeLoad(), self._clock.now())
        if leaving is Leaving.STAYS:
            return None
        why = (
            f"node {node.id} is drained: {node.intent.reason}"
            if node.intent.draining
            else f"node {node.id} has a NoExecute taint that it does not tolerate"
        )
        if leaving is not Leaving.MUST and self._has_data_on(workload, status, node.id):
            text = f"local volume data is on {node.id}; {why}"
            return _because(
                Verdict.PINNED, ReasonCode.LOCAL_DATA, text, node.id, f"it stays; {_DISCARD}"
            )
        blocked = self._placing.explain_leaving(workload, status)
        if blocked is None:
            return Explanation(Verdict.MOVING, why, node.id, next_step="it moves in its turn")
        return evolve(
            blocked,
            verdict=Verdict.DEFERRED,
            summary=capped(f"{why}; no other node takes it: {blocked.summary}"),
            node_id=node.id,
            next_step="it stays until another node takes it",
        )

    # It is on its way here

    def _arriving(
        self, workload: Workload, status: StatusRecord, assignment: Assignment
    ) -> Explanation | None:
        if status.status is WorkloadStatus.RUNNING:
            return None
        for node_id in sorted(self._view.graves_of(workload.id)):
            grave = self._view.tombstone(node_id, workload.id)
            if grave is None or grave.value.uid != workload.uid:
                continue
            old = "runs on until the new one is healthy" if grave.value.after_healthy else "ends"
            return Explanation(
                Verdict.MOVING,
                f"it moves from {node_id} to {assignment.node_id}; the old copy {old}",
                assignment.node_id,
                next_step=_NEXT_STEPS.get(status.status, "the reconciler looks at it"),
            )
        return None


def _waiting(status: StatusRecord, assignment: Assignment) -> Explanation | None:
    """What keeps it from being sent, as the record says."""
    reason, node_id = status.reason, assignment.node_id
    if reason is not None and reason.code in NEXT_STEPS:
        code = ReasonCode(reason.code)
        return _because(Verdict.DEFERRED, code, reason.message, node_id, NEXT_STEPS[code])
    if reason is not None and status.waits_to_grow:
        name = reason.code.removeprefix("resize:")
        code = ReasonCode(name) if name in set(ReasonCode) else ReasonCode.RESOURCE
        return _because(Verdict.DEFERRED, code, reason.message, node_id, GROWS_NEXT)
    if reason is not None and reason.code == "agent_unreachable":
        then = "it is tried again; after the grace it goes elsewhere, unless its data is there"
        return Explanation(Verdict.DEFERRED, reason.message, node_id, next_step=then)
    if status.failure is not None and status.status is WorkloadStatus.RETRY_PENDING:
        return Explanation(
            Verdict.DEFERRED,
            capped(f"{status.failure.code}: {status.failure.message}"),
            node_id,
            next_step="it is tried again when the next try is due",
        )
    return None


def _there(
    workload: Workload, status: StatusRecord, assignment: Assignment, node: Node
) -> Explanation:
    next_step = _NEXT_STEPS.get(status.status, "the reconciler looks at it")
    found = mismatch(node, workload.spec)
    if not found:
        return Explanation(
            Verdict.PLACED, assignment.reason, assignment.node_id, next_step=next_step
        )
    return Explanation(
        Verdict.PLACED,
        capped(f"{assignment.reason}; it {found}"),
        assignment.node_id,
        next_step=f"{next_step}; {HOW_TO_MOVE}",
    )


def _because(
    verdict: Verdict, code: ReasonCode, text: str, node_id: NodeId, next_step: str
) -> Explanation:
    tally = ReasonTally(code, 1, text)
    return Explanation(verdict, capped(text), node_id, reasons=(tally,), next_step=next_step)

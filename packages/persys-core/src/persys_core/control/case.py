"""Case: one workload's records, node and newest sighting, read together and reduced to facts."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from persys_core.control.leaving_work import work_to_leave
from persys_core.control.term import Term
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.spec import secret_values
from persys_core.model.workload import (
    Assignment,
    Intent,
    IntentAction,
    StatusRecord,
    Workload,
)
from persys_core.nodes.leaving import (
    Leaving,
    NodeLoad,
    is_node_system,
    leaving_of,
)
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.demand import charge_for
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, Versioned
from persys_core.reconcile.observe import missing, observe_report
from persys_core.reconcile.situation import (
    Circumstances,
    Known,
    Outlook,
    Seen,
    Situation,
    assess,
    outlook_of,
)
from persys_core.reconcile.transitions import created
from persys_core.volumes.affinity import has_local_data
from persys_core.volumes.claims import claims_elsewhere, held_here
from persys_core.volumes.disks import disk_ids_of, local_disk_node
from persys_core.volumes.outcome import Outcome

__all__ = ["Case", "load_case"]


@frozen
class Case:
    """What a step works on. ``demand`` is the workload's charge on its present node."""

    stored: Versioned[Workload]
    stored_status: Versioned[StatusRecord] | None
    status: StatusRecord
    assignment: Versioned[Assignment] | None
    node: Node | None
    seen: Seen | None
    demand: Resources
    situation: Situation
    now: datetime

    @property
    def workload(self) -> Workload:
        return self.stored.value

    @property
    def node_id(self) -> str:
        """The assigned node's id; empty where there is none."""
        return self.assignment.value.node_id if self.assignment else ""

    @property
    def outlook(self) -> Outlook:
        return self.situation.outlook

    def intent(self, action: IntentAction, term: Term) -> Intent:
        """The announcement of a call about this workload, made now."""
        deadline = self.now + term.config.agent_rpc_timeout
        epoch = term.epoch(self.node_id)
        return Intent(action, self.node_id, self.workload.revision_id, epoch, self.now, deadline)

    def transaction(self, status: StatusRecord | None = None) -> Transaction:
        """A transaction that loses if the wish or the assignment changed meanwhile, and that
        writes ``status`` where one is given."""
        tx = Transaction().expecting(Key.workload(self.workload.id), self.stored)
        tx = tx.expecting(Key.assignment(self.workload.id), self.assignment)
        key = Key.status(self.workload.id)
        if status is None:
            return tx.expecting(key, self.stored_status)
        return tx.put(key, status, self.stored_status)


def load_case(term: Term, workload_id: WorkloadId) -> Case | None:
    """Read everything of one workload at this moment; ``None`` where it does not exist, or where
    one of its records cannot be read, since nothing can be decided then."""
    stored = term.view.workload(workload_id)
    keys = (Key.status(workload_id), Key.assignment(workload_id))
    if stored is None or term.view.is_unreadable(*keys):
        return None
    workload = stored.value
    now = term.now()
    stored_status = term.view.status(workload_id)
    status = stored_status.value if stored_status else created(workload, now)
    assignment = term.view.assignment(workload_id)
    node = term.view.node(assignment.value.node_id) if assignment else None
    seen = _seen(term, workload, assignment, now)
    request = term.placing.request_for(workload, status)
    demand = charge_for(request, node.value) if node else request.demand
    condition = _condition(term, assignment)
    situation = assess(
        Known(workload, status, assignment.value if assignment else None, demand, seen),
        Circumstances(
            node=condition,
            pinned=_is_pinned(term, workload, status, assignment),
            epoch=term.epoch(assignment.value.node_id if assignment else ""),
            apply_timeout=term.config.apply_timeout(workload.spec.type),
            timing=term.config.timing,
            now=now,
            leaving=_leaving(term, workload, assignment, now),
            old_copy=_has_old_copy(term, workload, assignment),
            held=_is_held(term, workload, assignment, condition),
            uncallable=_is_uncallable(term, assignment, condition),
            stable_after=term.config.retry.stable_after,
            tell_again_after=term.config.reapply.delay_after(
                status.reapply.attempts, workload.spec.type
            ),
        ),
    )
    return Case(
        stored,
        stored_status,
        status,
        assignment,
        node.value if node else None,
        seen,
        demand,
        situation,
        now,
    )


def _condition(term: Term, assignment: Versioned[Assignment] | None) -> NodeCondition:
    """An unassigned workload has no node to wait for; the table never looks at it then."""
    if assignment is None:
        return NodeCondition.READY
    return term.condition(assignment.value.node_id)


def _is_pinned(
    term: Term, workload: Workload, status: StatusRecord, assignment: Versioned[Assignment] | None
) -> bool:
    if assignment is None or outlook_of(workload, status) is not Outlook.RUN:
        return False
    node_id = assignment.value.node_id
    if status.data_node_id == node_id and has_local_data(workload.spec):
        return True
    return local_disk_node(workload.spec, Outcome(term.view)) == node_id


def _leaving(
    term: Term, workload: Workload, assignment: Versioned[Assignment] | None, now: datetime
) -> Leaving:
    node = term.view.node(assignment.value.node_id) if assignment else None
    if node is None or not (node.value.intent.draining or node.value.intent.taints):
        return Leaving.STAYS
    return leaving_of(node.value, workload.spec, _load_of(term, node.value.id), now)


def _load_of(term: Term, node_id: NodeId) -> NodeLoad:
    ordinary = sum(not is_node_system(each.spec) for each in work_to_leave(term.view, node_id))
    return NodeLoad(ordinary, moves=len(term.view.buried_at(node_id)))


def _has_old_copy(term: Term, workload: Workload, assignment: Versioned[Assignment] | None) -> bool:
    if assignment is None or not (workload.spec.managed_volumes or disk_ids_of(workload.spec)):
        return False
    return any(claims_elsewhere(workload, assignment.value.node_id, Outcome(term.view)))


def _is_uncallable(
    term: Term, assignment: Versioned[Assignment] | None, condition: NodeCondition
) -> bool:
    """Whether its node beats, and its agent could not be called for the whole grace."""
    if assignment is None or condition is not NodeCondition.READY:
        return False
    return term.uncallable_since(assignment.value.node_id) is not None


def _is_held(
    term: Term,
    workload: Workload,
    assignment: Versioned[Assignment] | None,
    condition: NodeCondition,
) -> bool:
    """Whether its silent node may still write to a volume that no other node may write to then."""
    if assignment is None or (
        condition is not NodeCondition.LOST and not _is_uncallable(term, assignment, condition)
    ):
        return False
    if not (workload.spec.managed_volumes or disk_ids_of(workload.spec)):
        return False
    return held_here(workload, assignment.value.node_id, Outcome(term.view)) is not None


def _seen(
    term: Term, workload: Workload, assignment: Versioned[Assignment] | None, now: datetime
) -> Seen | None:
    if assignment is None:
        return None
    placed = assignment.value
    observation = term.observations.of(workload.id, placed.node_id, placed.created_at)
    if observation is None:
        return None
    if observation.report is None:
        return Seen(missing(), observation.at, observation.by_query, observation.heard_at)
    sighting = observe_report(
        observation.report, workload, now, secrets=secret_values(workload.spec)
    )
    return Seen(sighting, observation.at, observation.by_query, observation.heard_at)

"""DriftRemedies: performs what the table of remedies chose.

What is assigned to the node is only nudged: the reconciler does the rest. An orphan is adopted by
an assignment and deleted by a tombstone, which the loops then see through like any other; so no
call to an agent is made here, and each one is announced by a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve

from persys_core.control.drift_notes import DriftNotes, Look
from persys_core.control.term import Term
from persys_core.control.work import Work, workload_work
from persys_core.drift.classify import (
    Finding,
    Orphan,
    OrphanKind,
    orphan_kind,
)
from persys_core.drift.remedy import LISTINGS_TO_DELETE, Age, Facts, Remedy, choose_remedy
from persys_core.model.drift import DriftAction, OrphanPolicy
from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import StatusRecord, Tombstone, Workload
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement import ledger
from persys_core.placement.demand import charge_for
from persys_core.placement.ledger import Target, Transaction
from persys_core.ports.cluster_store import Key, Versioned
from persys_core.reconcile import transitions
from persys_core.volumes.affinity import has_local_data

__all__ = ["DriftRemedies"]

_SOUND = (WorkloadStatus.RUNNING, WorkloadStatus.STOPPED, WorkloadStatus.COMPLETED)
_AWAITING_A_NODE = (WorkloadStatus.PENDING, WorkloadStatus.RETRY_PENDING, WorkloadStatus.STOPPED)
_DELETES = (
    DriftAction.DELETE_ORPHAN,
    DriftAction.DELETE_RESIDUAL,
    DriftAction.DELETE_DUPLICATE,
)


class DriftRemedies:
    """The remedies of one term."""

    def __init__(self, term: Term, nudge: Callable[[Work], None], notes: DriftNotes) -> None:
        self._term = term
        self._notes = notes
        self._view = term.view
        self._nudge = nudge

    def choose(self, finding: Finding) -> Remedy:
        """What is to be done about ``finding`` now."""
        policy = self._term.config.orphan_policy
        orphan = finding.orphan
        if orphan is None:
            return choose_remedy(Facts(finding.type, policy))
        workload = self._view.workload(finding.workload_id)
        remedy = choose_remedy(
            Facts(
                finding.type,
                policy,
                orphan.kind,
                self._age(orphan),
                sighted_enough=orphan.listings >= LISTINGS_TO_DELETE,
                same_revision=workload is not None
                and workload.value.revision_id == orphan.revision_id,
                wanted=self._is_wanted(finding),
                has_room=self._target(finding) is not None,
                sound_elsewhere=self._is_sound_elsewhere(finding),
            )
        )
        assignment = self._view.assignment(finding.workload_id)
        if assignment is None or (orphan.kind, remedy.name) != (OrphanKind.DUPLICATE, "report"):
            return remedy
        return evolve(remedy, note=self._note_of_second(finding, assignment.value.node_id))

    def perform(self, finding: Finding, action: DriftAction, tx: Transaction) -> Transaction:
        """``tx`` with what ``action`` writes; what is only nudged writes nothing."""
        if action is DriftAction.ADOPT:
            return self._adopt(finding, tx)
        if action in _DELETES:
            return self._bury(finding, action, tx)
        if finding.orphan is None:
            self._nudge(workload_work(finding.workload_id))
        return tx

    def witnesses(self, findings: Iterable[Finding]) -> frozenset[NodeId]:
        """The nodes of other owners that have to be asked before anything is deleted: this replica
        lists its own only, and a copy is superfluous only where the assigned one is sound."""
        if self._term.config.orphan_policy is not OrphanPolicy.DELETE:
            return frozenset()
        homes = (
            self._view.assignment(each.workload_id)
            for each in findings
            if each.orphan is not None and each.orphan.kind is OrphanKind.DUPLICATE
        )
        nodes = {stored.value.node_id for stored in homes if stored is not None}
        return frozenset(
            node
            for node in nodes
            if not self._term.ownership.owns(node) and self._lately_listed(node) is None
        )

    def _lately_listed(self, node_id: NodeId) -> Look | None:
        lately = self._term.now() - self._term.config.drift_interval
        return self._notes.listed_since(node_id, lately)

    def still_stands(self, finding: Finding) -> bool:
        """Whether the records do not explain by now what was found."""
        if finding.orphan is None:
            return True
        workload = self._view.workload(finding.workload_id)
        assignment = self._view.assignment(finding.workload_id)
        if self._view.tombstone(finding.node_id, finding.workload_id) is not None:
            return False
        if assignment is not None and assignment.value.node_id == finding.node_id:
            return False
        kind = orphan_kind(
            workload.value if workload else None, assignment.value if assignment else None
        )
        return kind is finding.orphan.kind

    def _note_of_second(self, finding: Finding, node_id: NodeId) -> str:
        """Where the other copy is, which an operator must know before one of them is removed."""
        status = self._view.status(finding.workload_id)
        runs = status is not None and status.value.status is WorkloadStatus.RUNNING
        where = f"also runs on {node_id}, where it is" if runs else f"{node_id} is where it is"
        return (
            f"{where} assigned; remove it on {finding.node_id}, or set the orphan policy to delete"
        )

    # Facts

    def _age(self, orphan: Orphan) -> Age:
        marker = self._view.marker()
        if marker is None or orphan.created_at is None:
            return Age.UNTOLD
        return Age.OLDER if orphan.created_at <= marker.value.began_by else Age.NEWER

    def _is_wanted(self, finding: Finding) -> bool:
        workload = self._view.workload(finding.workload_id)
        status = self._view.status(finding.workload_id)
        if workload is None or status is None:
            return False
        deleted = workload.value.desired_state is DesiredState.DELETED
        return not deleted and status.value.status in _AWAITING_A_NODE

    def _is_sound_elsewhere(self, finding: Finding) -> bool:
        workload = self._view.workload(finding.workload_id)
        status = self._view.status(finding.workload_id)
        assignment = self._view.assignment(finding.workload_id)
        if workload is None or status is None or assignment is None:
            return False
        node_id = assignment.value.node_id
        look = self._lately_listed(node_id)
        if look is None or self._term.condition(node_id) is not NodeCondition.READY:
            # What a node was seen to run before it fell silent may be gone, and this the only copy.
            return False
        runs = status.value.status is WorkloadStatus.RUNNING
        if runs and finding.workload_id in look.unsettled:
            return False
        here = status.value.data_node_id == finding.node_id and has_local_data(workload.value.spec)
        return not here and status.value.intent is None and status.value.status in _SOUND

    def _target(self, finding: Finding) -> Target | None:
        """The reporting node as the target of an adoption; ``None`` where it cannot be one."""
        node = self._view.node(finding.node_id)
        stored = self._view.workload(finding.workload_id)
        status = self._view.status(finding.workload_id)
        if node is None or stored is None or status is None or not self._takes_work(node.value):
            return None
        return self._room(node, stored.value, status.value)

    def _takes_work(self, node: Node) -> bool:
        built = self._view.ledger()
        intent = node.intent
        open_ = not (intent.cordoned or intent.draining or intent.taints)
        return open_ and built is not None and built.value.ready

    def _room(
        self, node: Versioned[Node], workload: Workload, status: StatusRecord
    ) -> Target | None:
        request = self._term.placing.request_for(workload, status)
        charge = charge_for(request, node.value)
        allocation = self._view.allocation(node.value.id)
        charged = allocation.value.charged if allocation else Resources()
        free = (charged + charge).fits_in(node.value.allocatable)
        if not free or has_data_elsewhere(workload, status, node.value.id):
            return None
        return Target(node, allocation, charge, "drift remediation: adopted where it runs")

    # Writes

    def _adopt(self, finding: Finding, tx: Transaction) -> Transaction:
        workload = self._view.workload(finding.workload_id)
        status = self._view.status(finding.workload_id)
        target = self._target(finding)
        if workload is None or status is None or target is None:
            return tx
        now = self._term.now()
        tx = tx.expecting(Key.workload(finding.workload_id), workload)
        tx = ledger.assign(tx, workload.value, None, target, now)
        return tx.put(
            Key.status(finding.workload_id), transitions.assigned(status.value, now), status
        )

    def _bury(self, finding: Finding, action: DriftAction, tx: Transaction) -> Transaction:
        """Owe the delete: it holds nothing, since nothing was ever charged for it here."""
        assert finding.orphan is not None, "this is a bug: only orphans are deleted"
        workload = self._view.workload(finding.workload_id)
        assignment = self._view.assignment(finding.workload_id)
        grave = Tombstone(
            node_id=finding.node_id,
            workload_id=finding.workload_id,
            uid=workload.value.uid if workload else "",
            revision_id=finding.orphan.revision_id,
            held=Resources(),
            created_at=self._term.now(),
            reason=f"drift remediation: {action}",
            shares=0,
        )
        tx = tx.expecting(Key.workload(finding.workload_id), workload)
        tx = tx.expecting(Key.assignment(finding.workload_id), assignment)
        if finding.orphan.kind is OrphanKind.DUPLICATE:
            status = self._view.status(finding.workload_id)
            tx = tx.expecting(Key.status(finding.workload_id), status)
        return tx.put(Key.tombstone(finding.node_id, finding.workload_id), grave, None)


def has_data_elsewhere(workload: Workload, status: StatusRecord, node_id: str) -> bool:
    """Whether its local data is on another node than ``node_id``."""
    return has_local_data(workload.spec) and status.data_node_id not in ("", node_id)

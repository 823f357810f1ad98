"""Planning: what an apply would do now, told and not done.

The decision is the one that apply commits (``control.apply_decision``), on this replica's view of
the moment; nothing is written and nothing is held, so the same view gives the same answer again.
Decided here: only what is said beside that decision.
"""

from __future__ import annotations

from attrs import evolve

from persys_core.control.answers import ApplyOutcomeKind, Plan
from persys_core.control.apply_decision import ApplyDecision, ApplyRules, check_apply
from persys_core.control.explaining import Explaining
from persys_core.control.placing import Placing
from persys_core.control.requests import ApplyWorkload
from persys_core.control.view import ClusterView
from persys_core.model.spec_changes import SpecChange, spec_changes
from persys_core.model.workload import Assignment, StatusRecord
from persys_core.placement.explain import Explanation, Verdict
from persys_core.placement.mismatch import HOW_TO_MOVE, mismatch
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Key

__all__ = ["Planning"]


class Planning:
    """Plans applies on one view."""

    def __init__(
        self, view: ClusterView, placing: Placing, explaining: Explaining, clock: Clock
    ) -> None:
        self._view = view
        self._placing = placing.without_holding()
        self._explaining = explaining
        # A plan has no identity; the apply gives one, and nothing is decided by it.
        self._rules = ApplyRules(view, self._placing, clock, new_uid=lambda: "")

    def plan(self, request: ApplyWorkload, max_examples: int = 3) -> Plan:
        """What ``request`` would do. Raises what the apply would raise: InvalidInputError,
        NotFoundError, RefusedError."""
        check_apply(request)
        decision = self._rules.decide(request)
        return Plan(
            outcome=decision.answer.outcome,
            revision_id=decision.answer.revision_id,
            node_id=decision.answer.node_id,
            explanation=self._explained(decision, max_examples),
            changes=_changes(decision),
            requested=decision.workload.spec.resources,
            expected_revision=decision.stored.revision if decision.stored else 0,
            store_revision=self._view.revision,
            notes=self._notes(decision),
        )

    def _notes(self, decision: ApplyDecision) -> tuple[str, ...]:
        assignment, wishes = self._assignment(decision), decision.workload
        node = self._view.node(assignment.node_id) if assignment else None
        if node is None or assignment is None or assignment.released:
            return ()
        found = mismatch(node.value, wishes.spec)
        return (f"{found}; {HOW_TO_MOVE}",) if found else ()

    def _explained(self, decision: ApplyDecision, max_examples: int) -> Explanation:
        """The decision's own words, with the nodes behind them; where no node was looked for, what
        would be said of the workload after the apply."""
        found = decision.answer.explanation
        if found is None:
            return self._explaining.explain(
                decision.workload, self._status(decision), self._assignment(decision), max_examples
            )
        if found.verdict in (Verdict.PLACED, Verdict.UNSCHEDULABLE):
            nodes = self._placing.explain(decision.workload, decision.unplaced, max_examples)
            found = evolve(
                found,
                nodes_considered=nodes.nodes_considered,
                nodes_feasible=nodes.nodes_feasible,
                reasons=nodes.reasons,
                candidates=nodes.candidates,
            )
        return evolve(found, store_revision=self._view.revision)

    def _status(self, decision: ApplyDecision) -> StatusRecord:
        pending = decision.tx.pending(Key.status(decision.workload.id))
        if isinstance(pending, StatusRecord):
            return pending
        stored = self._view.status(decision.workload.id)
        return stored.value if stored else decision.unplaced

    def _assignment(self, decision: ApplyDecision) -> Assignment | None:
        pending = decision.tx.pending(Key.assignment(decision.workload.id))
        if isinstance(pending, Assignment):
            return pending
        stored = self._view.assignment(decision.workload.id)
        return stored.value if stored else None


def _changes(decision: ApplyDecision) -> tuple[SpecChange, ...]:
    if decision.answer.outcome is ApplyOutcomeKind.UNCHANGED:
        return ()
    old, new = decision.stored.value if decision.stored else None, decision.workload
    before = str(old.desired_state) if old else ""
    after = str(new.desired_state)
    state = (SpecChange("desired_state", before, after),) if before != after else ()
    known = old is not None and old.imported is None
    return (*state, *spec_changes(old.spec if old and known else None, new.spec))

"""Plans as the wire shows them. Every text of one is masked already where it is made."""

from __future__ import annotations

from persys_core.control.answers import Freshness, Plan
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.explanation_out import explanation
from persys_server.grpc.mapping.nodes_out import amounts

__all__ = ["plan_response"]


def plan_response(plan: Plan, fresh: Freshness) -> pb.PlanWorkloadResponse:
    """The answer to PlanWorkload."""
    return pb.PlanWorkloadResponse(
        outcome=str(plan.outcome),
        revision_id=plan.revision_id,
        explanation=explanation(plan.explanation),
        requested=amounts(plan.requested),
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
        expected_revision=plan.expected_revision,
        node_id=plan.node_id,
        changes=[
            pb.FieldChange(field=change.field, old=change.old, new=change.new)
            for change in plan.changes
        ],
        notes=plan.notes,
    )

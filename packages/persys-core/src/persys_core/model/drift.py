"""Drift: what an agent runs differs from what is recorded, and not because something is on its way.

The words and the record of it; what counts as drift is decided in ``drift.classify``, what is
done about it in ``drift.remedy``.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from persys_core.model.ids import NodeId, WorkloadId

__all__ = ["DriftAction", "DriftRecord", "DriftType", "OrphanPolicy"]


class DriftType(StrEnum):
    """The four ways in which a node and the records can differ (values of the reference)."""

    ORPHAN_ON_AGENT = "orphan_on_agent"
    """The agent has a workload that is not assigned to its node."""
    STATE_MISMATCH = "state_mismatch"
    """It runs and should rest, or rests and should run."""
    REVISION_MISMATCH = "revision_mismatch"
    """The agent has another spec revision than the one that is recorded as running."""
    MISSING_ON_AGENT = "missing_on_agent"
    """It is recorded as running there, and the agent does not have it."""


class DriftAction(StrEnum):
    """What is done about a drift (values of the reference, then ours)."""

    ALIGN = "align_scheduler_status"
    """The reconciler aligns the record, or has the agent do what is wished."""
    REAPPLY = "reapply_scheduler_revision"
    """The reconciler sends the recorded revision."""
    RECONCILE = "retry_and_reconcile"
    """The reconciler starts it again, under its guard."""
    INVESTIGATE = "operator_investigation"
    """Nothing is done: an operator must decide."""
    ADOPT = "adopt_orphan_to_reporting_node"
    DELETE_ORPHAN = "delete_orphan_on_agent"
    DELETE_RESIDUAL = "delete_deleted_residual_on_agent"
    DELETE_DUPLICATE = "delete_duplicate_on_reporting_node"
    # Ours
    AWAIT_SIGHTINGS = "await_more_sightings"
    """It would be deleted, and was not sighted often enough yet."""


class OrphanPolicy(StrEnum):
    """What happens to work that an agent runs and the scheduler did not assign to it."""

    REPORT = "report"
    ADOPT = "adopt"
    DELETE = "delete"


@frozen
class DriftRecord:
    """One drift that stands. Written when it is found or changes, removed when it is resolved.

    ``scheduler_status`` and ``agent_status`` hold revisions where those differ. ``last_error``
    says why nothing, or not what the policy asks, is done. ``resolved`` is only ever true in
    records of the reference, which keeps them.
    """

    node_id: NodeId
    workload_id: WorkloadId
    drift_type: DriftType
    detected_at: datetime
    scheduler_status: str = ""
    agent_status: str = ""
    action: str = ""
    resolved: bool = False
    last_error: str = ""

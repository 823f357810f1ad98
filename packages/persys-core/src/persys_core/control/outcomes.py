"""What a look at a workload came to, as facts for people; telemetry keeps them, nothing reads them.

Decided here: that a look which only waits or asks is no outcome (it would be told every second
while a task is under way), that a look succeeded unless a failure was counted in it, and that a
workload whose records are gone leaves no facts behind (reference defect B6).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from persys_core.control.case import Case
from persys_core.control.term import Term
from persys_core.model.workload import StatusRecord
from persys_core.ports.observer import Metric
from persys_core.reconcile.actions import Action
from persys_core.reconcile.decide import Rule

__all__ = ["note_outcome"]

_NO_OUTCOME = frozenset(
    (
        Action.AWAIT_OLD_COPY,
        Action.AWAIT_NODE,
        Action.AWAIT_INTENT,
        Action.AWAIT_TASK,
        Action.AWAIT_RUNTIME,
        Action.AWAIT_START,
        Action.BACKOFF_WAIT,
        Action.REAPPLY_WAIT,
        Action.INQUIRE,
        Action.CONFIRM_DELETE,
    )
)


def note_outcome(term: Term, case: Case, rule: Rule) -> None:
    """Count what ``rule`` came to for the workload of ``case``, and tell the telemetry."""
    stored = term.view.status(case.workload.id)
    after = stored.value if stored else case.status
    failed = _failures(after) > _failures(case.status)
    term.ports.observer.increment(
        Metric.RECONCILE_RESULTS,
        {"action": rule.action.value, "success": "false" if failed else "true"},
    )
    if rule.action in _NO_OUTCOME or term.view.workload(case.workload.id) is None:
        return
    facts = _facts(rule, after, case.now, failed=failed)
    term.ports.telemetry.record_reconciliation(case.workload.id, facts)


def _facts(rule: Rule, after: StatusRecord, at: datetime, *, failed: bool) -> Mapping[str, str]:
    failure = after.failure.message if failed and after.failure else ""
    return {
        "action": rule.action.value,
        "success": "false" if failed else "true",
        "reason": failure or rule.because,
        "attemptedAt": at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "retryCount": str(after.retry.attempts),
        "status": after.status.value,
        "nodeId": after.observed.node_id,
    }


def _failures(status: StatusRecord) -> int:
    return status.retry.attempts + status.retry.infrastructure_failures

"""What a simulated agent keeps on its disk: one row per workload, and its volumes' data.

Decided here: how a look at the runtime changes a row (the status refresh of the agents).
"""

from __future__ import annotations

from datetime import datetime

from attrs import define, field

from persys_core.model.ids import RevisionId, WorkloadId
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState
from persys_core.sim.agent_runtime import Look

__all__ = ["RETRY_KEYS", "AgentStore", "Row"]

RETRY_KEYS = ("retry_attempts", "next_retry_time", "retry_terminal", "retry_terminal_reason")


@define(eq=False)
class Row:
    """A workload with its status, as the last refresh left it."""

    workload_id: WorkloadId
    revision_id: RevisionId
    desired: DesiredState
    spec: WorkloadSpec
    created_at: datetime
    updated_at: datetime
    state: AgentState = AgentState.PENDING
    message: str = ""
    metadata: dict[str, str] = field(factory=dict)

    def fail(self, message: str, now: datetime, **metadata: str) -> None:
        """Note a failed operation; the next refresh overwrites state and message."""
        self.state, self.message, self.updated_at = AgentState.FAILED, message, now
        self.metadata.update(metadata)

    def forget_retries(self) -> None:
        """Drop what the local retry tracker noted."""
        for key in RETRY_KEYS:
            self.metadata.pop(key, None)

    def refresh(self, look: Look, now: datetime, *, masks_failures: bool) -> None:
        """Take over what the runtime says.

        With ``masks_failures`` the runtime's answer replaces a failure that the agent knows of.
        """
        self.state, self.message = look.state, look.message
        self.metadata.update(look.metadata)
        self.updated_at = now
        if self.desired is DesiredState.STOPPED and look.state is AgentState.FAILED:
            self.state = AgentState.STOPPED
            self.message = f"stopped (previous runtime error: {look.message})"
            self.forget_retries()
        error = self.metadata.get("last_error", "")
        if error and look.is_missing and not masks_failures:
            self.state, self.message = AgentState.FAILED, error

    def report(self) -> AgentReport:
        """The row as a status answer."""
        return AgentReport(
            workload_id=self.workload_id,
            state=self.state,
            revision_id=self.revision_id,
            type=self.spec.type,
            desired_state=self.desired,
            message=self.message,
            failure_code=self.metadata.get("failure_reason", ""),
            reported_at=self.updated_at,
            created_at=self.created_at,
            metadata=self.metadata,
        )


@define(eq=False)
class AgentStore:
    """Rows by workload id, and which workloads use which volume (``driver:name``).

    ``newest_epoch`` is the highest epoch that a call carried; it survives a restart.
    """

    rows: dict[WorkloadId, Row] = field(factory=dict)
    volumes: dict[str, set[WorkloadId]] = field(factory=dict)
    newest_epoch: int = 0

    def in_order(self) -> list[Row]:
        """The rows by id, as the agents' store keeps them."""
        return [self.rows[workload_id] for workload_id in sorted(self.rows)]

"""Who may ask this node to change something, and when.

Decided here: the reasons for which a request that can be read is turned away: an older leader
sent it (decisions §4), no runtime could ever run what it asks for, or the node is being drained and
would get something new. Who may call at all is decided before (``callers``).
"""

from __future__ import annotations

from collections.abc import Mapping

from persys_agent.engine.backends import SpecCheck
from persys_agent.runtimes.port import RuntimeFailedError
from persys_agent.state.lock import StateError
from persys_agent.state.store import AgentState
from persys_core.model.ids import WorkloadId
from persys_core.model.secrets import scrubbed
from persys_core.model.spec import WorkloadSpec, secret_values
from persys_core.model.states import WorkloadType

__all__ = ["Gate", "disk_failed"]


class Gate:
    """``is_draining`` is what the scheduler last said in answer to a heartbeat. ``checks`` are
    those of the runtimes."""

    def __init__(
        self, state: AgentState, checks: Mapping[WorkloadType, SpecCheck] | None = None
    ) -> None:
        self.is_draining = False
        self._state = state
        self._checks = checks or {}

    async def refuse_stale(self, epoch: int) -> str:
        """Why a call of that epoch is refused; empty where it is obeyed, and remembered then.

        0 stands for a caller that sent none.
        """
        newest = self._state.newest_epoch
        if 0 < epoch < newest:
            return (
                f"[STALE_EPOCH] the call carries epoch {epoch}, but this agent has obeyed"
                f" epoch {newest}: another scheduler leads now"
            )
        try:
            await self._state.raise_epoch(epoch)
        except StateError as error:
            return disk_failed(error)
        return ""

    def refuse_unfit(self, workload_id: WorkloadId, spec: WorkloadSpec) -> str:
        """Why this spec can never run; empty where that is not certain yet."""
        check = self._checks.get(spec.type)
        try:
            if check is not None:
                check(spec)
        except RuntimeFailedError as error:
            text = scrubbed(str(error), secret_values(spec))
            return f"[{error.code}] {text} (workload: {workload_id})"
        return ""

    def refuse_new(self, workload_id: WorkloadId, *, is_orphan: bool = False) -> str:
        """Why a workload may not come here now; what is here may be applied again, also where its
        record was lost."""
        if not self.is_draining or is_orphan or self._state.get(workload_id) is not None:
            return ""
        return (
            "[ADMISSION_REFUSED] admission rejected: the scheduler lets nothing new come to this"
            f" node now (workload: {workload_id})"
        )


def disk_failed(error: StateError) -> str:
    """What a caller is told where nothing can be taken in, since it could not be remembered.

    The words are those of a runtime that is away: it is the node's trouble, not the workload's.
    """
    return f"[RUNTIME_UNAVAILABLE] runtime not available, nothing can be taken in: {error}"

"""``PortWait``: patience with a host port that is about to be free.

Decided here: for whom a start waits. Work of this node that is on its way out, or is being changed,
lets go of its ports within seconds, and its successor is not to blame for coming early; whoever
else has the port keeps it, and that is told at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from persys_agent.engine.failures import OperationError
from persys_agent.engine.rows import Rows
from persys_core.model.ids import WorkloadId
from persys_core.model.states import DesiredState
from persys_core.ports.clock import Clock

__all__ = ["PortWait"]

_LONGEST = timedelta(seconds=30)
_LINGERS = timedelta(seconds=2)
"""What a port may stay taken for after its container is gone; nobody shows as its holder then."""
_PAUSE = timedelta(seconds=0.5)


class PortWait:
    """``is_busy``: whether a task of that workload is open."""

    def __init__(self, rows: Rows, clock: Clock, is_busy: Callable[[WorkloadId], bool]) -> None:
        self._rows = rows
        self._clock = clock
        self._is_busy = is_busy

    async def out(self, workload_id: WorkloadId, start: Callable[[], Awaitable[None]]) -> None:
        """Start, again and again while a port that it needs is about to be free.

        Raises the last ``OperationError``.
        """
        began = self._clock.monotonic()
        while True:
            try:
                return await start()
            except OperationError as error:
                waited = timedelta(seconds=self._clock.monotonic() - began)
                if waited >= self._patience(workload_id, error):
                    raise
                if waited < _PAUSE:
                    structlog.get_logger().info(
                        "waiting for a port", workload=workload_id, holder=error.holder or "unknown"
                    )
            await self._clock.sleep(_PAUSE)

    def _patience(self, workload_id: WorkloadId, error: OperationError) -> timedelta:
        """How long such an error may go on before it counts."""
        if not error.is_port_taken:
            return timedelta(0)
        if error.holder is None:
            return _LINGERS
        is_other = error.holder not in ("", workload_id)
        return _LONGEST if is_other and self._is_leaving(error.holder) else timedelta(0)

    def _is_leaving(self, workload_id: WorkloadId) -> bool:
        row = self._rows.get(workload_id)
        is_to_run = row is not None and row.desired_state is DesiredState.RUNNING
        return self._is_busy(workload_id) or (row is not None and not is_to_run)

"""Reads the replica's state for probes and scrapes, without ever failing them.

Decided here: what is shown where the replica cannot answer. A number that cannot be told is left
out of /metrics; /health answers with what is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from attrs import frozen

from persys_core.control.answers import ClusterSummary, Freshness
from persys_core.control.loops import LoopLag
from persys_core.model.errors import PersysError
from persys_core.ports.telemetry import Telemetry
from persys_server.observability.gauges import ReplicaGauges, ReplicaReadings
from persys_server.observability.metrics import Metrics
from persys_server.phase import Phase, PhaseSwitch
from persys_server.replica import ReplicaState
from persys_server.scheduler_api import SchedulerReplica

__all__ = ["Readings"]

_PATIENCE_SECONDS = 2.0


@frozen
class Readings:
    """The probe of this replica, and the maker of its metrics page."""

    _scheduler: SchedulerReplica
    _telemetry: Telemetry
    _phase: PhaseSwitch
    _metrics: Metrics
    _gauges: ReplicaGauges
    _lag: LoopLag

    def __attrs_post_init__(self) -> None:
        self._metrics.registry.register(self._gauges)

    def probe(self) -> ReplicaState:
        """The facts now."""
        facts = self._scheduler.mode
        return ReplicaState(
            standing=self._scheduler.standing,
            phase=self._phase.phase,
            mode=facts.mode,
            mode_reason=facts.reason,
            mode_changed_at=facts.since,
            loop_ages=self._loop_ages(),
        )

    async def metrics_page(self, accept: str) -> tuple[bytes, str]:
        """The text of /metrics at this moment, and its content type."""
        summary, fresh = await self._summary()
        self._gauges.readings = ReplicaReadings(
            summary=summary,
            usages=self._telemetry.workload_usages(),
            loop_ages=self._loop_ages(),
            loop_lag_seconds=self._lag.current().total_seconds(),
            view_age_seconds=None if fresh is None else fresh.age.total_seconds(),
        )
        return self._metrics.page(accept)

    async def _summary(self) -> tuple[ClusterSummary, Freshness] | tuple[None, None]:
        if self._phase.phase is not Phase.SERVING:
            return None, None
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await self._scheduler.queries.summary()
        except (PersysError, TimeoutError):
            return None, None

    def _loop_ages(self) -> Mapping[str, float]:
        return {name: loop.age().total_seconds() for name, loop in self._scheduler.loops.items()}

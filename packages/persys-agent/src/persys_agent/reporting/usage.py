"""``UsageCollector``: measures in the background, so that no call and no heartbeat waits for it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from persys_agent.engine.backends import Backends
from persys_agent.host.usage import HostMeter
from persys_agent.runtimes.port import Interactive, RuntimeFailedError, RuntimeUnavailableError
from persys_core.model.ids import WorkloadId
from persys_core.model.usage import WorkloadUsage
from persys_core.ports.clock import Clock

__all__ = ["UsageCollector"]

_DEADLINE_SECONDS = 20.0


class UsageCollector:
    """``newest`` has the last measurement of each workload that still runs, ``host`` the node's."""

    def __init__(
        self,
        backends: Backends,
        host: HostMeter,
        clock: Clock,
        interval: timedelta = timedelta(seconds=15),
    ) -> None:
        self.newest: dict[WorkloadId, WorkloadUsage] = {}
        self._runtimes = tuple(backends.interactive.values())
        self.host = host
        self._clock = clock
        self._interval = interval

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            try:
                await self.measure()
            except Exception:
                structlog.get_logger().exception("bug: measuring failed")
            await self._clock.sleep(self._interval)

    async def measure(self) -> None:
        """Measure once. A runtime that does not answer leaves its workloads out."""
        self.host.measure()
        found: dict[WorkloadId, WorkloadUsage] = {}
        for each in await asyncio.gather(*map(_used, self._runtimes)):
            found.update(each)
        self.newest.clear()
        self.newest.update(found)


async def _used(runtime: Interactive) -> dict[WorkloadId, WorkloadUsage]:
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            return dict(await runtime.usage())
    except (RuntimeFailedError, RuntimeUnavailableError, TimeoutError):
        return {}

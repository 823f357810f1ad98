"""``Detector``: asks again what this node can do, so that what is promised stays true."""

from __future__ import annotations

from datetime import timedelta

import structlog

from persys_agent.engine.backends import Backends
from persys_agent.reporting.capabilities import Capabilities, detect_capabilities
from persys_agent.state.store import AgentState
from persys_core.ports.clock import Clock

__all__ = ["Detector"]


class Detector:
    """``current`` is what was found last."""

    def __init__(
        self,
        backends: Backends,
        state: AgentState,
        clock: Clock,
        interval: timedelta = timedelta(seconds=60),
    ) -> None:
        self.current = Capabilities()
        self._backends = backends
        self._state = state
        self._clock = clock
        self._interval = interval

    async def detect(self) -> None:
        """Ask once, and remember which runtimes have worked here."""
        before, self.current = self.current, await detect_capabilities(self._backends)
        await self._state.add_kinds(self.current.workload_types)
        for kind, found in self.current.runtimes.items():
            if before.runtimes.get(kind) != found:
                structlog.get_logger().info(
                    "runtime", type=str(kind), available=found.is_available, detail=found.detail
                )

    async def run(self) -> None:
        """Ask again and again until cancelled."""
        while True:
            await self._clock.sleep(self._interval)
            await self.detect()

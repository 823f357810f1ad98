"""``Detector``: asks again what this node can do, so that what is promised stays true.

Decided here: when it asks: every now and then, and at once where a runtime that was taken for
available does not answer a look at its instances, or the other way round.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from persys_agent.engine.backends import Backends
from persys_agent.reporting.capabilities import Capabilities, detect_capabilities
from persys_agent.state.store import AgentState
from persys_core.model.states import WorkloadType
from persys_core.ports.clock import Clock

__all__ = ["Detector"]

_CALM = timedelta(seconds=1)
"""Between two questions at least, whatever the looks say."""


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
        self._news = asyncio.Event()

    async def detect(self) -> None:
        """Ask once, and remember which runtimes have worked here."""
        before, self.current = self.current, await detect_capabilities(self._backends)
        await self._state.add_kinds(self.current.workload_types)
        for kind, found in self.current.runtimes.items():
            if before.runtimes.get(kind) != found:
                structlog.get_logger().info(
                    "runtime", type=str(kind), available=found.is_available, detail=found.detail
                )

    def hear(self, kind: WorkloadType, answered: bool) -> None:
        """A look at all instances of ``kind`` was answered, or was not."""
        found = self.current.runtimes.get(kind)
        if found is not None and found.is_available != answered:
            self._news.set()

    async def run(self) -> None:
        """Ask again and again until cancelled."""
        while True:
            await self._due()
            self._news.clear()
            await self.detect()
            await self._clock.sleep(_CALM)

    async def _due(self) -> None:
        waits = [
            asyncio.ensure_future(each)
            for each in (self._clock.sleep(self._interval), self._news.wait())
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

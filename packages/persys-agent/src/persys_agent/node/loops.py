"""A loop that must not die: whatever it raises is a bug that is logged, counted and outlived."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from persys_core.ports.clock import Clock

__all__ = ["Loops"]

_PAUSE = timedelta(seconds=5)


class Loops:
    """``problem`` names a loop that failed last and has not run well since; ``errors`` counts."""

    def __init__(self, clock: Clock) -> None:
        self.errors = 0
        self.problem = ""
        self._clock = clock

    async def keep(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run ``loop`` again whenever it fails, until it returns or is cancelled."""
        while True:
            try:
                await loop()
                return
            except Exception as error:
                self.errors += 1
                self.problem = f"the loop {name} failed: {type(error).__name__}"
                structlog.get_logger().exception("bug: a loop failed", loop=name)
            await self._clock.sleep(_PAUSE)
            self.problem = ""

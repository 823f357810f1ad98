"""Clock: the only source of time in the core."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """Wall time, monotonic time and waiting; virtual in tests and in the simulator."""

    def now(self) -> datetime:
        """The present instant, aware UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Wait for ``duration``."""
        ...

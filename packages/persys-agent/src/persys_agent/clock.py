"""The system's clock, as the core wants it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

__all__ = ["SystemClock"]


_ALWAYS: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """Implements ``ports.clock.Clock``."""

    def now(self) -> datetime:
        """The present instant."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back, those of a suspended machine included."""
        return time.clock_gettime(_ALWAYS) if _ALWAYS is not None else time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        """Wait for ``duration``; none or less only lets others run."""
        await asyncio.sleep(max(0.0, duration.total_seconds()))

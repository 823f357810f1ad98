"""The Clock port on the machine's clock: the one place of the control plane that reads it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

__all__ = ["SystemClock"]


class SystemClock:
    """Wall time in UTC, the monotonic clock, and sleeping on the event loop."""

    def now(self) -> datetime:
        """The present instant, aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        """Wait for ``duration``; zero or less only gives others a turn."""
        await asyncio.sleep(max(0.0, duration.total_seconds()))

"""Where this process stands between its start and its end. Only ``lifecycle`` moves it on."""

from __future__ import annotations

import asyncio
from enum import StrEnum

__all__ = ["Phase", "PhaseSwitch"]


class Phase(StrEnum):
    """``STARTING``: no view of the store yet. ``STOPPING``: work in flight is being finished."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class PhaseSwitch:
    """The present phase, and a way to wait for the end."""

    def __init__(self) -> None:
        self._phase = Phase.STARTING
        self._stopping = asyncio.Event()

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self._phase

    def serve(self) -> None:
        """The view of the store is complete; never after ``stop``."""
        if self._phase is Phase.STARTING:
            self._phase = Phase.SERVING

    def stop(self) -> None:
        """Nothing new is begun; streams end."""
        self._phase = Phase.STOPPING
        self._stopping.set()

    async def stopping(self) -> None:
        """Wait until ``stop`` is called."""
        await self._stopping.wait()

"""EventLog: bounded history and a live tail of what happened; best effort by design.

Duties: ``append`` never raises into the caller and never waits for a backend; what cannot be
kept is dropped and counted. Ids grow in the order of appending. A reader that asks for what is
no longer there gets one event of type ``EventsLost`` in its place, never silence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from persys_core.model.event import Event, EventFilter

__all__ = ["EventLog"]


class EventLog(Protocol):
    """Appends, lists oldest first, and tails."""

    def append(self, event: Event) -> None:
        """Record ``event``; its id is assigned here."""
        ...

    async def list(self, wanted: EventFilter, limit: int = 0) -> Sequence[Event]:
        """The newest ``limit`` matching events (0: all that are kept), oldest first."""
        ...

    def tail(self, wanted: EventFilter, after_id: str = "") -> AsyncIterator[Event]:
        """History (after ``after_id`` where given), oldest first, then live, without duplicates.

        A reader that is too slow is ended with an ``EventsLost`` event as its last.
        """
        ...

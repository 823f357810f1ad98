"""What a simulated machine still has to do, by time. No waiting: whoever owns it asks what is due.

Decided here: the order of equal instants, which is the order of entry.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

__all__ = ["Action", "Agenda"]

Action: TypeAlias = Callable[[datetime], None]
"""Something to do; it is told at which instant it happens."""


class Agenda:
    """A heap of instants and actions."""

    def __init__(self) -> None:
        self._items: list[tuple[datetime, int, Action]] = []
        self._order = itertools.count()

    def at(self, when: datetime, action: Action) -> None:
        """Do ``action`` at ``when``."""
        heapq.heappush(self._items, (when, next(self._order), action))

    def next_at(self) -> datetime | None:
        """When the next action is due; ``None`` when there is none."""
        return self._items[0][0] if self._items else None

    def run_next(self, earliest: datetime) -> datetime:
        """Take the next action out and do it, at its time but not before ``earliest``.

        Returns the instant at which it happened.
        """
        when, _, action = heapq.heappop(self._items)
        happens_at = max(when, earliest)
        action(happens_at)
        return happens_at

    def clear(self) -> None:
        """Forget everything (the process that wanted it is gone)."""
        self._items.clear()

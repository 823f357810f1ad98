"""How output that was broken off is gone on with: nothing twice, as little as possible left out.

Decided here: agents count no lines, so what was seen already is told by its instants. On the same
node the last lines are asked for again, and those that are not newer are left out; where an agent
knows no instants, only what is new is asked for. On another node the output is another one, and is
shown from its beginning.
"""

from __future__ import annotations

from persys_proto.agent.v1 import agent_pb2 as wire
from persysctl.agent import Place

__all__ = ["RESUMED_LINES", "Bookmark"]

RESUMED_LINES = 1000
"""How many of the last lines are asked for again."""


class Bookmark:
    """How far the output was read; ``first_tail`` is what the person asked for."""

    def __init__(self, first_tail: int) -> None:
        self._tail = first_tail
        self._place: Place | None = None
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        """By service and stream: the newest instant, and how many lines had it."""
        self._again: dict[tuple[str, str], tuple[int, int]] = {}
        self._to_check = 0

    def resumed_at(self, place: Place) -> int:
        """Begin to read, or go on, at ``place``; answers how many of the last lines to ask for."""
        if self._place is None:
            tail = self._tail
        elif self._place != place:
            self._last.clear()
            tail = RESUMED_LINES
        elif not self._last:
            tail = min(self._tail, RESUMED_LINES)
        else:
            tail = RESUMED_LINES if all(at for at, _ in self._last.values()) else 0
        self._place, self._again, self._to_check = place, dict(self._last), tail
        return tail

    def is_new(self, line: wire.LogLine) -> bool:
        """Take a line in; whether it was not seen before."""
        key = (line.source, line.stream)
        if self._to_check > 0 and self._was_seen(key, line.at_ms):
            self._to_check -= 1
            return False
        newest, count = self._last.get(key, (0, 0))
        self._last[key] = (line.at_ms, count + 1 if line.at_ms == newest else 1)
        return True

    def _was_seen(self, key: tuple[str, str], at_ms: int) -> bool:
        newest, count = self._again.get(key, (0, 0))
        if at_ms < newest:
            return True
        if at_ms == newest and count > 0:
            self._again[key] = (newest, count - 1)
            return True
        return False

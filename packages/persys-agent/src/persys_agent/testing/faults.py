"""Faults that a double is told to have: the next calls of a verb fail, wait, or find nobody."""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import timedelta

from attrs import define, field

from persys_core.ports.clock import Clock

__all__ = ["Faults"]


@define
class Faults:
    """``journal`` has every call as (verb, subject), in order of arrival.

    ``delays``: how long each call of a verb takes.
    """

    clock: Clock
    delays: dict[str, timedelta] = field(factory=dict)
    journal: list[tuple[str, str]] = field(factory=list)
    _errors: dict[str, deque[Exception]] = field(factory=lambda: defaultdict(deque))

    def fail(self, verb: str, error: Exception, times: int = 1) -> None:
        """Let the next ``times`` calls of ``verb`` raise ``error``."""
        self._errors[verb].extend([error] * times)

    def mend(self) -> None:
        """Have no fault any more."""
        self._errors.clear()
        self.delays.clear()

    def count(self, verb: str, subject: str) -> int:
        """How often ``verb`` was called for ``subject``."""
        return self.journal.count((verb, subject))

    async def call(self, verb: str, subject: str = "") -> None:
        """Note a call, wait as long as it takes, and fail where it shall."""
        self.journal.append((verb, subject))
        if delay := self.delays.get(verb):
            await self.clock.sleep(delay)
        if errors := self._errors.get(verb):
            raise errors.popleft()

"""A lease: who holds something until when."""

from __future__ import annotations

import asyncio

from attrs import define, field

__all__ = ["Lease"]


@define(eq=False)
class Lease:
    """One holding; ``deadline`` is monotonic seconds.

    ``ended`` is set when it was given up or lost, not when its deadline passes.
    """

    instance_id: str
    deadline: float
    ended: asyncio.Event = field(factory=asyncio.Event, init=False)

    def is_valid(self, now: float) -> bool:
        """Whether it has neither been ended nor run out at ``now``."""
        return not self.ended.is_set() and now < self.deadline

    def renew(self, now: float, deadline: float) -> None:
        """Move the deadline, unless the lease is over at ``now``: what was lost stays so."""
        if self.is_valid(now):
            self.deadline = deadline

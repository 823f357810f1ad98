"""Leader leases as one database would hold them: who holds which, until when, who waits.

Decided here: that a lease is exclusive until its deadline has passed. What a leader does, and
how its epoch comes about, is decided in ``membership``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

__all__ = ["ElectionHub", "LeaderLease"]


@define(eq=False)
class LeaderLease:
    """One holding of an election; ``deadline`` is monotonic seconds.

    ``ended`` is set when it was given up or lost, not when its deadline passes.
    """

    election: str
    instance_id: str
    deadline: float
    ended: asyncio.Event
    in_office: bool = False

    def is_valid(self, now: float) -> bool:
        """Whether it has neither been ended nor run out at ``now``."""
        return not self.ended.is_set() and now < self.deadline


class ElectionHub:
    """Shared by all replicas of one simulated or single-process cluster."""

    def __init__(self) -> None:
        self._leases: dict[str, LeaderLease] = {}
        # A dict, since a set of events has no order that a run could repeat.
        self._bells: dict[asyncio.Event, None] = {}

    def acquire(
        self, election: str, instance_id: str, now: float, ttl: float
    ) -> LeaderLease | None:
        """A new lease, or ``None`` while another one is valid."""
        if self.holder(election, now) is not None:
            return None
        lease = LeaderLease(election, instance_id, now + ttl, asyncio.Event())
        self._leases[election] = lease
        return lease

    def renew(self, lease: LeaderLease, now: float, ttl: float) -> bool:
        """Move the deadline; false, and the lease is ended, where it has run out already."""
        if not lease.is_valid(now):
            lease.ended.set()
            return False
        lease.deadline = now + ttl
        return True

    def release(self, lease: LeaderLease) -> None:
        """End ``lease`` at once, so that whoever waits may win; ended ones stay so."""
        lease.ended.set()
        if self._leases.get(lease.election) is lease:
            del self._leases[lease.election]
        for bell in self._bells:
            bell.set()

    def holder(self, election: str, now: float) -> LeaderLease | None:
        """The valid lease of ``election``, if there is one."""
        lease = self._leases.get(election)
        return lease if lease is not None and lease.is_valid(now) else None

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set by each release, while the block runs."""
        bell = asyncio.Event()
        self._bells[bell] = None
        try:
            yield bell
        finally:
            del self._bells[bell]

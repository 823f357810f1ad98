"""Leader leases as one database would hold them: who holds which, until when, who waits.

Decided here: that a lease is exclusive until its deadline has passed. What a leader does, and
how its epoch comes about, is decided in ``membership``; what becomes of a replica's record when
its lease ends, in ``registrations``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

from persys_core.memory.leases import Lease
from persys_core.memory.registrations import Registrations
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import ClusterStore

__all__ = ["ElectionHub", "LeaderLease"]


@define(eq=False)
class LeaderLease(Lease):
    """One holding of an election."""

    election: str
    in_office: bool = False


class ElectionHub:
    """Shared by all replicas of one simulated or single-process cluster.

    ``store`` is the database's own way to its records, by which it removes those of dead replicas;
    without it the store of the first replica that registers is used. ``close`` it at the end.
    """

    def __init__(self, store: ClusterStore | None = None) -> None:
        self._store = store
        self._registrations: Registrations | None = None
        self._leases: dict[str, LeaderLease] = {}
        # A dict, since a set of events has no order that a run could repeat.
        self._bells: dict[asyncio.Event, None] = {}

    def acquire(
        self, election: str, instance_id: str, now: float, ttl: float
    ) -> LeaderLease | None:
        """A new lease, or ``None`` while another one is valid."""
        if self.holder(election, now) is not None:
            return None
        lease = LeaderLease(instance_id, now + ttl, election)
        self._leases[election] = lease
        return lease

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

    def registrations(self, store: ClusterStore, clock: Clock) -> Registrations:
        """Who is registered; a replica with ``store`` asks."""
        if self._registrations is None:
            self._registrations = Registrations(self._store or store, clock)
        return self._registrations

    def close(self) -> None:
        """Nothing is removed any more: the database ends with this process."""
        if self._registrations is not None:
            self._registrations.close()

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """An event that is set by each release, while the block runs."""
        bell = asyncio.Event()
        self._bells[bell] = None
        try:
            yield bell
        finally:
            del self._bells[bell]

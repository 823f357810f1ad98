"""Membership: which replicas are there and which of them leads, under leases and with fences.

Duties: at most one holder at any time; the epoch (creation revision of the holder's record in
the cluster store) grows strictly from holder to holder, so that a commit which expects it fails
once another one leads; a holder knows of its loss before another can win, by comparing the lease
deadline with the monotonic clock at each use, not by a timer.

A registration is held in the same way, by the replica that it names: its record and its
acknowledgement stand as long as its lease, and vanish with it also where the replica is dead.
Whatever the backend answers to a renewal, or does not, short of that the lease is gone: the lease
is held and the renewal tried again, until the deadline (L01, L03).
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

from persys_core.model.errors import PersysError
from persys_core.model.replica import ReplicaRecord
from persys_core.ports.cluster_store import Expectation, StoreUnavailableError

__all__ = ["InstanceTakenError", "Leadership", "Membership", "RegistrationLostError"]


class RegistrationLostError(PersysError):
    """The replica is not registered any more: register again before anything is done as a member.

    What was to be written was not.
    """


class InstanceTakenError(StoreUnavailableError):
    """Another process is registered under this replica's name, and its lease has not ended."""


@frozen
class Leadership:
    """A won election. ``fence`` stands in every commit of the loops that run under it.

    A registration is one whose ``election`` is empty.
    """

    election: str
    instance_id: str
    epoch: int
    fence: Expectation


class Membership(Protocol):
    """One replica's part among the replicas."""

    @property
    def instance_id(self) -> str:
        """This replica's name, unique per process life."""
        ...

    async def campaign(self, election: str) -> Leadership:
        """Wait until this replica leads ``election``. Cancelling it leaves no trace."""
        ...

    async def register(self, record: ReplicaRecord) -> Leadership:
        """Put ``record`` in the store for as long as this replica renews its lease.

        The record names this replica. One registration at a time: one that is lost may be made
        again, one that holds is resigned first. Cancelling it leaves no trace.
        StoreUnavailableError; InstanceTakenError where this name is registered already.
        """
        ...

    async def acknowledge(self, registration: Leadership, version: int) -> None:
        """Put this replica's word on ``version`` of the shard map beside its record.

        RegistrationLostError where ``registration`` has ended; StoreUnavailableError, after which
        it may be called again.
        """
        ...

    def is_valid(self, leadership: Leadership) -> bool:
        """Whether the lease of ``leadership`` has not ended; synchronous, asks the clock."""
        ...

    async def lost(self, leadership: Leadership) -> None:
        """Wait until ``leadership`` is lost."""
        ...

    async def resign(self, leadership: Leadership) -> None:
        """Give the lead, or the registration, up at once; what is lost already is no error."""
        ...

    async def leader(self, election: str) -> str:
        """The instance that leads ``election`` now; empty where nobody does."""
        ...

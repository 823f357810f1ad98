"""Membership: which replica leads, under a lease and with a fence.

Duties: at most one holder at any time; the epoch (creation revision of the leader's record in
the cluster store) grows strictly from holder to holder, so that a commit which expects it fails
once another one leads; a holder knows of its loss before another can win, by comparing the lease
deadline with the monotonic clock at each use, not by a timer.
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen

from persys_core.ports.cluster_store import Expectation

__all__ = ["Leadership", "Membership"]


@frozen
class Leadership:
    """A won election. ``fence`` stands in every commit of the loops that run under it."""

    election: str
    instance_id: str
    epoch: int
    fence: Expectation


class Membership(Protocol):
    """One replica's part in elections."""

    @property
    def instance_id(self) -> str:
        """This replica's name, unique per process life."""
        ...

    async def campaign(self, election: str) -> Leadership:
        """Wait until this replica leads ``election``. Cancelling it leaves no trace."""
        ...

    def is_valid(self, leadership: Leadership) -> bool:
        """Whether the lease of ``leadership`` has not ended; synchronous, asks the clock."""
        ...

    async def lost(self, leadership: Leadership) -> None:
        """Wait until ``leadership`` is lost."""
        ...

    async def resign(self, leadership: Leadership) -> None:
        """Give the lead up at once; resigning what is already lost is no error."""
        ...

    async def leader(self, election: str) -> str:
        """The instance that leads ``election`` now; empty where nobody does."""
        ...

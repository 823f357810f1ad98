"""Records that exist once per cluster: the marker and the ledger's state."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from attrs import frozen

__all__ = ["ClusterMarker", "LeaderRecord", "LedgerState", "MarkerState"]

_CLOCKS_DIFFER_BY = timedelta(seconds=60)


class MarkerState(StrEnum):
    """``FRESH`` until the first placement; a fresh cluster whose agents run work was lost."""

    FRESH = "fresh"
    ACTIVE = "active"


@frozen
class ClusterMarker:
    """Proof that this store belongs to this cluster; its absence is never *delete everything*.

    ``epoch_base`` is added to every leader's epoch. A store that was replaced counts anew, and
    agents refuse whoever comes with a lower epoch than they have obeyed.
    """

    cluster_id: str
    created_at: datetime
    state: MarkerState = MarkerState.FRESH
    epoch_base: int = 0

    @property
    def began_by(self) -> datetime:
        """What an agent dates up to this instant was there before; its clock may be ahead."""
        return self.created_at + _CLOCKS_DIFFER_BY


@frozen
class LedgerState:
    """Whether every node's allocation record has been built; nothing is placed before."""

    ready: bool
    built_at: datetime


@frozen
class LeaderRecord:
    """Who holds an election; the creation revision of this record is the leader's epoch."""

    election: str
    instance_id: str

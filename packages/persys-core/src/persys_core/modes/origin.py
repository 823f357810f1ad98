"""Whose records are in a store that has no marker? From one snapshot of it. Pure.

Decided here: what tells records of ours, whose marker was lost, from those of another scheduler,
which are taken over. Each life of an id has a ``uid`` with us, each node that was listed says under
which marker, and only we keep a ledger.
"""

from __future__ import annotations

from persys_core.model.cluster import MarkerState
from persys_core.model.node import Node
from persys_core.model.workload import Workload
from persys_core.ports.cluster_store import COORDINATION, Kind, Record, Snapshot

__all__ = ["is_empty", "is_of_ours", "state_of"]

_OURS_ALONE = (Kind.ALLOCATION, Kind.TOMBSTONE, Kind.LEDGER)
_OF_WORK = (Kind.WORKLOAD, Kind.STATUS, Kind.ASSIGNMENT)


def is_of_ours(snapshot: Snapshot) -> bool:
    """Whether any record in it was written by a scheduler of ours."""
    return any(
        key.kind in _OURS_ALONE or _bears_our_mark(stored.value)
        for key, stored in snapshot.records.items()
    )


def is_empty(snapshot: Snapshot) -> bool:
    """Whether nothing stands in it, readable or not, but what replicas tell each other."""
    known = any(key.kind not in COORDINATION for key in snapshot.records)
    return not known and not snapshot.quarantined


def state_of(snapshot: Snapshot) -> MarkerState:
    """``FRESH`` where no work is known: agents that run some then mean that records were lost."""
    known = any(key.kind in _OF_WORK for key in snapshot.records)
    return MarkerState.ACTIVE if known or snapshot.quarantined else MarkerState.FRESH


def _bears_our_mark(record: Record) -> bool:
    match record:
        case Workload():
            return bool(record.uid)
        case Node():
            return bool(record.listed_under)
        case _:
            return False

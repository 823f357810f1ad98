"""Explanations: why a workload stands where it stands, or why nowhere, in numbers.

One value feeds the API, the CLI, the event and the log (architecture §3.8).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from persys_core.model.ids import NodeId, StoreRevision

__all__ = [
    "Candidate",
    "Explanation",
    "NodeRejection",
    "ReasonCode",
    "ReasonTally",
    "Verdict",
]


class ReasonCode(StrEnum):
    """Why a node cannot take a workload, in the order in which it is checked. Stable."""

    NODE_NOT_READY = "node_not_ready"
    NOT_LISTED = "not_listed"
    """No full listing of the node yet in this cluster's life (decisions §4)."""
    CORDONED = "cordoned"
    DRAINING = "draining"
    TAINT = "taint"
    SELECTOR = "selector"
    WORKLOAD_TYPE = "workload_type"
    STORAGE_DRIVER = "storage_driver"
    EXCLUDED = "excluded"
    ANTI_AFFINITY = "anti_affinity"
    LOCAL_DATA = "local_data"
    TOMBSTONE = "tombstone"
    CPU = "cpu"
    MEMORY = "memory"
    DISK = "disk"
    RESOURCE = "resource"
    """A dimension that has no code of its own; the rejection's detail names it."""
    # Not about one node:
    NO_NODES = "no_nodes"
    LEDGER_NOT_READY = "ledger_not_ready"
    VOLUME_HELD = "volume_held"
    """Another workload, or a node that has not confirmed, may still write to its volume (S02)."""
    VOLUME_DELETING = "volume_deleting"
    VOLUME_MISSING = "volume_missing"
    ORPHAN_COPY = "orphan_copy"
    """A copy of it runs on a node that cannot take it, and no record explains that copy."""


class Verdict(StrEnum):
    """What an explanation explains."""

    PLACED = "placed"
    UNSCHEDULABLE = "unschedulable"
    DEFERRED = "deferred"
    HALTED = "halted"
    MOVING = "moving"
    PINNED = "pinned"
    NOT_NEEDED = "not_needed"
    """Nothing is to be placed: stopped before it ever ran, completed, being deleted."""


def _copied(parts: Mapping[str, float]) -> dict[str, float]:
    return dict(parts)


@frozen
class NodeRejection:
    """One node's first failing check, with asked and free in ``unit`` where it is a quantity."""

    node_id: NodeId
    code: ReasonCode
    detail: str
    asked: int = 0
    free: int = 0
    unit: str = ""


@frozen
class ReasonTally:
    """How many nodes said so, with the most that any of them had free, and some examples."""

    code: ReasonCode
    nodes: int
    detail: str
    asked: int = 0
    free_max: int = 0
    unit: str = ""
    examples: tuple[NodeRejection, ...] = ()


@frozen
class Candidate:
    """A feasible node and what its score is made of."""

    node_id: NodeId
    score: float
    parts: Mapping[str, float] = field(factory=dict, converter=_copied)


@frozen
class Explanation:
    """Why, since when, and what happens next.

    ``summary`` is one line of at most 1 KiB, most frequent reason first
    (``0/5 nodes: 3 cpu (asked 4000, at most 1500 millicores free), 2 selector disk=ssd``).
    """

    verdict: Verdict
    summary: str
    node_id: NodeId = ""
    score: float = 0.0
    score_parts: Mapping[str, float] = field(factory=dict, converter=_copied)
    nodes_considered: int = 0
    nodes_feasible: int = 0
    reasons: tuple[ReasonTally, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    since: datetime | None = None
    next_try_at: datetime | None = None
    next_step: str = ""
    store_revision: StoreRevision = 0

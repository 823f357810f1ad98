"""How feasible nodes are ranked, and which of equally good ones is taken.

Decided here: scores, from 0 (worst) to 1 (best), before penalties. Which nodes are feasible is
decided before, and penalties (``PENALTY``) are the placer's, the same for every strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from attrs import frozen

from persys_core.model.constraints import SchedulingStrategy
from persys_core.model.ids import WorkloadId
from persys_core.placement.columns import FloatArray, IntArray
from persys_core.placement.table import NodeTable, stable_hash

__all__ = [
    "DEFAULT_STRATEGIES",
    "PENALTY",
    "TIE_WIDTH",
    "BinPack",
    "SmallestName",
    "Spread",
    "StableHash",
    "Strategy",
    "TieBreak",
]

PENALTY = 1.0
"""What a PreferNoSchedule taint costs, and the node of the last failure: the whole scale, so
that such a node is taken only where no other is left."""

TIE_WIDTH = 1e-9
"""Scores this close to the best count as equal to it."""

_CPU_WEIGHT = _MEMORY_WEIGHT = 0.4
_SPREAD_WEIGHT = 0.2
_ODD = np.uint64(0x9E3779B97F4A7C15)


class TieBreak(Protocol):
    """Takes one of several nodes that score the same."""

    def choose(self, rows: IntArray, workload_id: WorkloadId, table: NodeTable) -> int:
        """The index in ``rows`` (not the row) of the node to take."""
        ...


@frozen
class StableHash:
    """The highest mix of two stable hashes, the node's and the workload's.

    Every replica takes the same node for a workload, and different workloads take different
    nodes.
    """

    def choose(self, rows: IntArray, workload_id: WorkloadId, table: NodeTable) -> int:
        mixed = (table.hashes.values[rows] ^ np.uint64(stable_hash(workload_id))) * _ODD
        return int(mixed.argmax())


@frozen
class SmallestName:
    """The first node by name, as published traces take it."""

    def choose(self, rows: IntArray, workload_id: WorkloadId, table: NodeTable) -> int:
        names = [table.ids[row] for row in rows.tolist()]
        return names.index(min(names))


class Strategy(Protocol):
    """Ranks the feasible nodes of one request. A higher score is better."""

    @property
    def ties(self) -> TieBreak:
        """What takes one of equally good nodes."""
        ...

    def scores(self, headroom: FloatArray, counts: FloatArray, busiest: float) -> FloatArray:
        """One score per feasible node, in an array that the caller may change.

        ``headroom`` is cpu + memory headroom (0 to 2), before the new workload. ``counts`` are
        workloads per node (or per ``spread_by`` domain), ``busiest`` the largest of them.
        """
        ...

    def parts(self, cpu: float, memory: float, count: float, busiest: float) -> dict[str, float]:
        """What one node's score is the sum of, by name."""
        ...


@frozen
class Spread:
    """Prefer free and quiet nodes (the seed's formula).

    0.4 x cpu headroom + 0.4 x memory headroom + 0.2 x (1 - count / count of the busiest
    candidate); the last factor is 1 while no candidate has a workload.
    """

    ties: TieBreak = StableHash()

    def scores(self, headroom: FloatArray, counts: FloatArray, busiest: float) -> FloatArray:
        scores = headroom * _CPU_WEIGHT
        scores += _SPREAD_WEIGHT
        if busiest:
            scores -= counts * (_SPREAD_WEIGHT / busiest)
        return scores

    def parts(self, cpu: float, memory: float, count: float, busiest: float) -> dict[str, float]:
        quiet = 1.0 - count / busiest if busiest else 1.0
        return {
            "cpu": _CPU_WEIGHT * cpu,
            "memory": _MEMORY_WEIGHT * memory,
            "spread": _SPREAD_WEIGHT * quiet,
        }


@frozen
class BinPack:
    """Prefer full nodes, so that others stay free for large workloads or can be switched off.

    The mirror of ``Spread``: 0.5 x (1 - cpu headroom) + 0.5 x (1 - memory headroom). How many
    workloads a node has does not count.
    """

    ties: TieBreak = StableHash()

    def scores(self, headroom: FloatArray, counts: FloatArray, busiest: float) -> FloatArray:
        return 1.0 - headroom * 0.5

    def parts(self, cpu: float, memory: float, count: float, busiest: float) -> dict[str, float]:
        return {"cpu": 0.5 * (1.0 - cpu), "memory": 0.5 * (1.0 - memory)}


DEFAULT_STRATEGIES: Mapping[SchedulingStrategy, Strategy] = {
    SchedulingStrategy.SPREAD: Spread(),
    SchedulingStrategy.BINPACK: BinPack(),
}

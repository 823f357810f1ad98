"""What was placed a moment ago and no node's report can show yet.

A hint for scoring, kept by the replica that placed; never a guarantee, which is the ledger's
(architecture §3.2). It lowers the measured headroom of a node for ``RESERVATION_LIFETIME``, by
when a report of the node shows the workload itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.resources import Resources

__all__ = ["RESERVATION_LIFETIME", "Reservations"]

RESERVATION_LIFETIME = timedelta(seconds=90)

_Key: TypeAlias = tuple[NodeId, WorkloadId]


class Reservations:
    """Held amounts per node and workload.

    ``take_changed`` has one reader, the placer, which passes the sums on to the fleet.
    """

    def __init__(self) -> None:
        self._held: dict[NodeId, dict[WorkloadId, tuple[Resources, datetime]]] = {}
        self._sums: dict[NodeId, dict[str, int]] = {}
        self._ends: list[tuple[datetime, _Key]] = []
        self._changed: set[NodeId] = set()

    def hold(
        self, node_id: NodeId, workload_id: WorkloadId, charge: Resources, now: datetime
    ) -> None:
        """Hold ``charge`` until ``now`` + ``RESERVATION_LIFETIME``; a second time, from anew."""
        self.release(node_id, workload_id)
        ends_at = now + RESERVATION_LIFETIME
        self._held.setdefault(node_id, {})[workload_id] = (charge, ends_at)
        heapq.heappush(self._ends, (ends_at, (node_id, workload_id)))
        self._add(node_id, charge, 1)

    def release(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """Hold it no longer; no error where it is not held."""
        held = self._held.get(node_id, {})
        known = held.pop(workload_id, None)
        if known is None:
            return
        self._add(node_id, known[0], -1)
        if not held:
            del self._held[node_id], self._sums[node_id]

    def clear(self) -> None:
        """Hold nothing: another replica leads, or this one begins to."""
        self._changed.update(self._held)
        self._held.clear()
        self._sums.clear()
        self._ends.clear()

    def expire(self, now: datetime) -> None:
        """Release what was held long enough at ``now``."""
        while self._ends and self._ends[0][0] <= now:
            _, (node_id, workload_id) = heapq.heappop(self._ends)
            held = self._held.get(node_id, {}).get(workload_id)
            if held is not None and held[1] <= now:
                self.release(node_id, workload_id)

    def in_flight(self, node_id: NodeId) -> Mapping[str, int]:
        """The sum of what is held on a node, by dimension."""
        return self._sums.get(node_id, {})

    def take_changed(self) -> frozenset[NodeId]:
        """The nodes whose sum may have changed since this was last asked."""
        if not self._changed:
            return frozenset()
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def _add(self, node_id: NodeId, charge: Resources, sign: int) -> None:
        sums = self._sums.setdefault(node_id, {})
        for dimension, amount in charge:
            sums[dimension] = sums.get(dimension, 0) + sign * amount
        self._changed.add(node_id)

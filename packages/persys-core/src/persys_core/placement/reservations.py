"""What was placed a moment ago and no node's report can show yet.

A hint for scoring, kept by the replica that placed; never a guarantee, which is the ledger's
(architecture §3.2). It lowers the measured headroom of a node for ``RESERVATION_LIFETIME``, by
when a report of the node shows the workload itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.resources import Resources

__all__ = ["RESERVATION_LIFETIME", "Reservations"]

RESERVATION_LIFETIME = timedelta(seconds=90)


class Reservations:
    """Held amounts per node and workload.

    ``take_changed`` has one reader, the placer, which passes the sums on to the fleet.
    """

    def __init__(self) -> None:
        # In the order in which they end, since all live equally long. A plain dict takes ever
        # longer to find its first entry when entries leave from the front.
        self._held: OrderedDict[tuple[NodeId, WorkloadId], tuple[datetime, Resources]]
        self._held = OrderedDict()
        self._sums: dict[NodeId, dict[str, int]] = {}
        self._changed: set[NodeId] = set()

    def hold(
        self, node_id: NodeId, workload_id: WorkloadId, charge: Resources, now: datetime
    ) -> None:
        """Hold ``charge`` until ``now`` + ``RESERVATION_LIFETIME``; a second time, from anew."""
        self.release(node_id, workload_id)
        self._held[node_id, workload_id] = (now + RESERVATION_LIFETIME, charge)
        sums = self._sums.setdefault(node_id, {})
        for dimension, amount in charge:
            sums[dimension] = sums.get(dimension, 0) + amount
        self._changed.add(node_id)

    def release(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """Hold it no longer; no error where it is not held."""
        held = self._held.pop((node_id, workload_id), None)
        if held is None:
            return
        sums = self._sums.get(node_id, {})
        for dimension, amount in held[1]:
            sums[dimension] -= amount
        if not any(sums.values()):
            self._sums.pop(node_id, None)
        self._changed.add(node_id)

    def clear(self) -> None:
        """Hold nothing: another replica leads, or this one begins to."""
        self._changed.update(self._sums)
        self._held.clear()
        self._sums.clear()

    def expire(self, now: datetime) -> None:
        """Release what was held long enough at ``now``."""
        while self._held:
            (node_id, workload_id), (ends_at, _) = next(iter(self._held.items()))
            if ends_at > now:
                return
            self.release(node_id, workload_id)

    def in_flight(self, node_id: NodeId) -> Mapping[str, int]:
        """The sum of what is held on a node, by dimension."""
        return self._sums.get(node_id, {})

    def take_changed(self) -> set[NodeId]:
        """The nodes whose sum may have changed since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

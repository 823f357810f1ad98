"""LedgerAudit: is every node's allocation the sum of what stands for it (P03, safety rule 5)?

Compared on the view, which costs nothing outside; a difference there may be a moment's, so it is
looked at again in one snapshot before it is repaired, by compare-and-swap, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from persys_core.control.term import Term
from persys_core.control.view import ClusterView
from persys_core.model.ids import NodeId
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation, Assignment, Tombstone
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, Kind
from persys_core.ports.observer import Metric

__all__ = ["LedgerAudit", "expected_allocations", "ledger_differences"]


def expected_allocations(
    assignments: Iterable[Assignment], tombstones: Iterable[Tombstone]
) -> dict[NodeId, Allocation]:
    """What each node's allocation must be, given everything that is charged there."""
    charged: dict[NodeId, list[Resources]] = {}
    counts: dict[NodeId, int] = {}
    for assignment in assignments:
        if not assignment.released:
            charged.setdefault(assignment.node_id, []).append(assignment.charged)
            counts[assignment.node_id] = counts.get(assignment.node_id, 0) + 1
    for grave in tombstones:
        charged.setdefault(grave.node_id, []).append(grave.held)
        counts[grave.node_id] = counts.get(grave.node_id, 0) + grave.shares
    return {
        node: Allocation(node, Resources.total(parts), counts.get(node, 0))
        for node, parts in charged.items()
    }


def ledger_differences(view: ClusterView) -> Mapping[NodeId, Allocation]:
    """The nodes whose record differs, with what it should be."""
    expected = expected_allocations(
        view.values(Kind.ASSIGNMENT, Assignment), view.values(Kind.TOMBSTONE, Tombstone)
    )
    recorded = {node: stored.value for node, stored in view.all(Kind.ALLOCATION).items()}
    return {
        node: expected.get(node, Allocation(node))
        for node in sorted(expected.keys() | recorded.keys())
        if expected.get(node, Allocation(node)) != recorded.get(node, Allocation(node))
    }


class LedgerAudit:
    """The check of whoever acts, for the nodes that it acts for."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def run(self) -> int:
        """Compare, and repair what is really wrong; how many records were repaired."""
        if not any(map(self._term.ownership.owns, ledger_differences(self._term.view))):
            return 0
        snapshot = await self._term.ports.store.snapshot()
        fresh = ClusterView()
        fresh.load(snapshot)
        repaired = 0
        for node_id, right in ledger_differences(fresh).items():
            if not self._term.ownership.owns(node_id):
                continue
            # Whatever changes the sum of a node writes this record, so comparing it is enough.
            tx = Transaction().put(Key.allocation(node_id), right, fresh.allocation(node_id))
            repaired += await self._term.commit(tx)
        self._term.ports.observer.increment(Metric.LEDGER_REPAIRS, {}, repaired)
        return repaired

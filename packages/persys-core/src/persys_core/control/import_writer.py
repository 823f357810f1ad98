"""ImportWriter: commits what an import rebuilds, node by node, each commit right by itself.

Decided here: which records go together. A workload's records and its share of the ledger are one
commit; whoever else wrote one of them meanwhile is met by comparison and wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from attrs import frozen

from persys_core.control.committer import Committer
from persys_core.control.placing import Placing
from persys_core.control.view import ClusterView
from persys_core.model.node import Node
from persys_core.placement.ledger import Transaction
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Key
from persys_core.recovery.plan import Decision, ImportItem
from persys_core.recovery.records import ImportedRecords, records_of

__all__ = ["ImportWriter"]

WORKLOADS_PER_COMMIT = 16
"""Four comparisons each, five where a store knows an older layout, besides the node, its ledger and
the marker: at most 100 in a commit."""


@frozen
class ImportWriter:
    """Writes into the store that ``committer`` commits to."""

    _view: ClusterView
    _committer: Committer
    _placing: Placing
    _clock: Clock
    _uid: Callable[[], str]

    async def write(self, node: Node, items: Iterable[ImportItem]) -> None:
        """Record ``node`` and what is to be imported from it. StoreUnavailableError, FrozenError:
        what was committed before stays, and a repeated import goes on from there."""
        await self._committer.transact(lambda: self._node(node))
        wanted = [item for item in items if item.decision is Decision.IMPORT]
        for start in range(0, len(wanted), WORKLOADS_PER_COMMIT):
            await self._write(wanted[start : start + WORKLOADS_PER_COMMIT])

    async def _write(self, part: Sequence[ImportItem]) -> None:
        await self._committer.transact(lambda: self._workloads(part))

    def _node(self, node: Node) -> tuple[Transaction, None]:
        return Transaction().put(Key.node(node.id), node, self._view.node(node.id)), None

    def _workloads(self, part: Sequence[ImportItem]) -> tuple[Transaction, None]:
        tx = Transaction()
        for item in part:
            if self._is_as_planned(item):
                tx = self._workload(tx, item)
        return tx, None

    def _is_as_planned(self, item: ImportItem) -> bool:
        """Whether nobody wrote the workload's record since it was looked at."""
        stored = self._view.workload(item.workload_id)
        planned = item.recorded.workload if item.recorded.is_stored else None
        return (stored.value if stored else None) == planned

    def _workload(self, tx: Transaction, item: ImportItem) -> Transaction:
        id_ = item.workload_id
        now = self._clock.now()
        records = records_of(item, self._uid(), now)
        charged = self._charged(tx, item, records, now)
        if charged is None:
            return tx
        tx = charged.put(Key.workload(id_), records.workload, self._view.workload(id_))
        tx = tx.put(Key.status(id_), records.status, self._view.status(id_))
        grave = Key.tombstone(item.node_id, id_)
        return tx.expecting(grave, self._view.tombstone(item.node_id, id_))

    def _charged(
        self, tx: Transaction, item: ImportItem, records: ImportedRecords, now: datetime
    ) -> Transaction | None:
        """``None`` where its node was removed meanwhile."""
        if records.ended is not None:
            key = Key.assignment(item.workload_id)
            return tx.put(key, records.ended, self._view.assignment(item.workload_id))
        return self._placing.found(tx, records.workload, records.status, item.node_id, now)

"""TakeOver: builds the ledger over another scheduler's records, before anything else is done.

Decided here: the order (decisions §3, ledger). First every workload gets its place and its charge,
then every node the sum of them, then the ledger is ready, and only then the loops begin. Each
commit is right by itself and comes out the same when it is repeated, so a leader that falls in the
middle leaves nothing to undo. What a record becomes is decided in ``recovery.take_over``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from persys_core.control.ledger_audit import ledger_differences
from persys_core.control.term import Term
from persys_core.model.cluster import LedgerState
from persys_core.model.errors import FrozenError
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.resources import Resources
from persys_core.model.volume import Attachment
from persys_core.model.workload import Workload
from persys_core.placement.demand import charge_for
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import (
    CommitTooLargeError,
    Key,
    Kind,
    StoreUnavailableError,
)
from persys_core.recovery.take_over import (
    Held,
    assignment_of,
    home_of,
    is_of_another,
    taken_over,
)

__all__ = ["TakeOver"]

WORKLOADS_PER_COMMIT = 8
"""Three records each, up to seven keys where they stand in an older layout, and its volumes."""
RETRY_AFTER = timedelta(seconds=1)
_log = logging.getLogger("persys.scheduler")


class TakeOver:
    """The first thing that a leader does; nothing in a cluster whose ledger is ready.

    ``may_act``: whether the mode permits it. Nobody else acts while it ``is_due``.
    """

    def __init__(self, term: Term, may_act: Callable[[], bool]) -> None:
        self._term = term
        self._may_act = may_act

    @property
    def is_due(self) -> bool:
        """Whether the ledger is to be built, also where its state was removed by hand. A store
        that lost more than that is in recovery, where nobody may act."""
        stored = self._term.view.ledger()
        return stored is None or not stored.value.ready

    async def run(self) -> None:
        """Until the ledger is ready. LeadershipLostError where that comes first."""
        while self.is_due:
            if self._may_act():
                try:
                    await self._build()
                    continue
                except (StoreUnavailableError, FrozenError) as error:
                    _log.warning("the ledger cannot be built yet: %s", error)
            await self._term.ports.clock.sleep(RETRY_AFTER)

    async def _build(self) -> None:
        of_another = [
            each.id
            for each in self._term.view.values(Kind.WORKLOAD, Workload)
            if is_of_another(each)
        ]
        for start in range(0, len(of_another), WORKLOADS_PER_COMMIT):
            await self._take(of_another[start : start + WORKLOADS_PER_COMMIT])
        await self._sum_up()
        await self._transact(self._ready)
        _log.info("took over %d workloads; the ledger is ready", len(of_another))

    async def _take(self, part: Sequence[WorkloadId]) -> None:
        try:
            await self._transact(lambda: self._of_all(part))
        except CommitTooLargeError as error:
            if len(part) > 1:
                for each in part:
                    await self._take((each,))
                return
            # Its place and its charge are what all others depend on.
            _log.warning("workload %s is placed as it is: %s", part[0], error)
            await self._transact(lambda: self._placed(Transaction(), part[0]))

    async def _transact(self, decide: Callable[[], Transaction]) -> None:
        term = self._term
        await term.committer.transact(lambda: (self._guarded(decide()), None), term.leadership)

    def _guarded(self, tx: Transaction) -> Transaction:
        return self._term.ownership.guard(tx) if tx.writes else tx

    def _of_all(self, part: Sequence[WorkloadId]) -> Transaction:
        tx = Transaction()
        for workload_id in part:
            tx = self._placed(tx, workload_id, whole=True)
        return tx

    def _placed(
        self, tx: Transaction, workload_id: WorkloadId, *, whole: bool = False
    ) -> Transaction:
        """``whole``: also write what is restored of its wish and its status."""
        view, now = self._term.view, self._term.now()
        stored, status = view.workload(workload_id), view.status(workload_id)
        keys = (Key.status(workload_id), Key.assignment(workload_id))
        if stored is None or not is_of_another(stored.value) or view.is_unreadable(*keys):
            return tx
        assignment = view.assignment(workload_id)
        home = home_of(status.value if status else None, assignment.value if assignment else None)
        taken = taken_over(
            stored.value, status.value if status else None, home, self._held(workload_id), now
        )
        if whole:
            tx = tx.put(Key.workload(workload_id), taken.workload, stored)
            tx = tx.put(Key.status(workload_id), taken.status, status)
        else:
            tx = tx.expecting(Key.workload(workload_id), stored)
        key = Key.assignment(workload_id)
        if not home:
            return tx.expecting(key, assignment)
        request = self._term.placing.request_for(taken.workload, taken.status)
        if view.is_unreadable(Key.node(home)):
            charge: Resources | None = request.demand
        else:
            node = view.node(home)
            tx = tx.expecting(Key.node(home), node)
            charge = charge_for(request, node.value) if node else None
        held = assignment_of(taken, home, charge, assignment.value if assignment else None, now)
        return tx.put(key, held, assignment)

    def _held(self, workload_id: WorkloadId) -> Sequence[Held]:
        view = self._term.view
        found = []
        for key in sorted(view.attachments_of(workload_id), key=lambda key: key.id):
            stored = view.get(key)
            if stored is not None and isinstance(stored.value, Attachment):
                volume = view.volume(stored.value.volume_id)
                if volume is not None:
                    found.append((stored.value, volume.value))
        return found

    async def _sum_up(self) -> None:
        for node_id in ledger_differences(self._term.view):
            await self._transact(partial(self._sum_of, node_id))

    def _sum_of(self, node_id: NodeId) -> Transaction:
        right = ledger_differences(self._term.view).get(node_id)
        tx = Transaction()
        if right is None:
            return tx
        return tx.put(Key.allocation(node_id), right, self._term.view.allocation(node_id))

    def _ready(self) -> Transaction:
        built = LedgerState(ready=True, built_at=self._term.now())
        return Transaction().put(Key.ledger(), built, self._term.view.ledger())

"""VolumeAudit: do the volumes' records say what their workloads' records say?

Every commit of ours keeps them so; another scheduler's data, and records that were put back, need
not be. Compared on the view, which costs nothing outside, and repaired by compare-and-swap over
everything that the repair rests on.
"""

from __future__ import annotations

from persys_core.control.term import Term
from persys_core.model.ids import WorkloadId
from persys_core.model.volume import Attachment, Volume
from persys_core.model.workload import Workload
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, Kind
from persys_core.sharding.hashing import UNASSIGNED
from persys_core.volumes.disks import disk_ids_of
from persys_core.volumes.following import followed

__all__ = ["VolumeAudit"]


class VolumeAudit:
    """The check of one replica, for all volumes: they belong to no node."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def run(self) -> int:
        """Compare, and repair what differs; how many workloads' volumes were repaired."""
        if not self._term.ownership.owns(UNASSIGNED):
            return 0
        repaired = 0
        for workload_id in sorted(self._with_volumes()):
            tx = followed(
                self._read_of(workload_id), self._term.view, workload_id, self._term.now()
            )
            if tx.writes:
                repaired += await self._term.commit(tx)
        return repaired

    def _with_volumes(self) -> set[WorkloadId]:
        view = self._term.view
        found = {each.id for each in view.values(Kind.WORKLOAD, Workload) if _has_volumes(each)}
        found.update(ref for each in view.values(Kind.VOLUME, Volume) for ref in each.workload_refs)
        found.update(each.workload_id for each in view.values(Kind.ATTACHMENT, Attachment))
        return found

    def _read_of(self, workload_id: WorkloadId) -> Transaction:
        view = self._term.view
        tx = Transaction()
        for key in (
            Key.workload(workload_id),
            Key.status(workload_id),
            Key.assignment(workload_id),
            *(Key.tombstone(node_id, workload_id) for node_id in view.graves_of(workload_id)),
        ):
            tx = tx.expecting(key, view.get(key))
        return tx


def _has_volumes(workload: Workload) -> bool:
    return bool(workload.spec.managed_volumes or disk_ids_of(workload.spec))

"""The records as they stand once a transaction is done: what volumes are to follow.

Decided here: nothing. Reads go to the transaction's own writes first, then to the records that it
was decided on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from attrs import field, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.volume import Attachment, Volume, VolumeId
from persys_core.model.workload import Assignment, StatusRecord, Tombstone, Workload
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, Kind, Put, Record, Versioned

__all__ = ["Outcome", "VolumeRecords"]


class VolumeRecords(Protocol):
    """What is read of a replica's view; the sets are indexes over it."""

    def get(self, key: Key) -> Versioned[Record] | None:
        """The record at ``key``."""
        ...

    def graves_of(self, workload_id: WorkloadId) -> frozenset[NodeId]:
        """The nodes that owe a delete of this workload."""
        ...

    def imported(self) -> frozenset[WorkloadId]:
        """The workloads whose specs, hence volumes, are not known yet."""
        ...

    def volumes_of(self, workload_id: WorkloadId) -> frozenset[VolumeId]:
        """The volumes whose records refer to this workload."""
        ...

    def attachments_of(self, workload_id: WorkloadId) -> frozenset[Key]:
        """Where this workload holds volumes."""
        ...

    def attachments_to(self, volume_id: VolumeId) -> frozenset[Key]:
        """Who holds this volume."""
        ...


@frozen
class Outcome:
    """``records`` with the writes of ``tx`` over them."""

    records: VolumeRecords
    tx: Transaction = Transaction()
    _written: Mapping[Key, Record | None] = field(init=False, repr=False)

    @_written.default
    def _collected(self) -> Mapping[Key, Record | None]:
        return {
            write.key: write.value if isinstance(write, Put) else None for write in self.tx.writes
        }

    def get(self, key: Key) -> Record | None:
        """The record at ``key`` afterwards."""
        if key in self._written:
            return self._written[key]
        stored = self.records.get(key)
        return stored.value if stored else None

    def node(self, node_id: NodeId) -> Node | None:
        found = self.get(Key.node(node_id))
        return found if isinstance(found, Node) else None

    def workload(self, workload_id: WorkloadId) -> Workload | None:
        found = self.get(Key.workload(workload_id))
        return found if isinstance(found, Workload) else None

    def status(self, workload_id: WorkloadId) -> StatusRecord | None:
        found = self.get(Key.status(workload_id))
        return found if isinstance(found, StatusRecord) else None

    def assignment(self, workload_id: WorkloadId) -> Assignment | None:
        found = self.get(Key.assignment(workload_id))
        return found if isinstance(found, Assignment) else None

    def volume(self, volume_id: VolumeId) -> Volume | None:
        found = self.get(Key.volume(volume_id))
        return found if isinstance(found, Volume) else None

    def node_of(self, workload_id: WorkloadId) -> NodeId:
        """The node that the workload is assigned to; empty where there is none."""
        assignment = self.assignment(workload_id)
        return assignment.node_id if assignment else ""

    def graves(self, workload_id: WorkloadId) -> Mapping[NodeId, Tombstone]:
        """What nodes owe of this workload."""
        nodes = set(self.records.graves_of(workload_id))
        nodes.update(
            write.value.node_id
            for write in self.tx.writes
            if isinstance(write, Put)
            and isinstance(write.value, Tombstone)
            and write.value.workload_id == workload_id
        )
        found = ((node, self.get(Key.tombstone(node, workload_id))) for node in sorted(nodes))
        return {node: grave for node, grave in found if isinstance(grave, Tombstone)}

    def holds_of(self, workload_id: WorkloadId) -> Mapping[Key, Attachment]:
        """The workload's attachments, by key."""
        written = (key for key, each in self._attachments() if each.workload_id == workload_id)
        return self._found({*self.records.attachments_of(workload_id), *written})

    def holds_on(self, volume_id: VolumeId) -> Mapping[Key, Attachment]:
        """The volume's attachments, by key."""
        written = (key for key, each in self._attachments() if each.volume_id == volume_id)
        return self._found({*self.records.attachments_to(volume_id), *written})

    def _attachments(self) -> Iterator[tuple[Key, Attachment]]:
        for key, value in self._written.items():
            if key.kind is Kind.ATTACHMENT and isinstance(value, Attachment):
                yield key, value

    def _found(self, keys: Iterable[Key]) -> Mapping[Key, Attachment]:
        found = ((key, self.get(key)) for key in sorted(keys, key=lambda key: key.id))
        return {key: each for key, each in found if isinstance(each, Attachment)}

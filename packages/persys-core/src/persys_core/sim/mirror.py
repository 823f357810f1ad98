"""The judges' own copy of the store, kept commit by commit, with what each commit changed.

Decided here: what a commit touched and what is charged on each node by it. Kept apart from every
replica's view, so that a fault in the view does not hide itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TypeVar, cast

from attrs import frozen

from persys_core.memory.cluster_store import MemoryClusterBackend
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation, Assignment, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import Commit, Key, Kind, Record, Snapshot, Versioned

__all__ = ["Charges", "Mirror", "Step", "Touched", "charge_of_record"]

R = TypeVar("R", bound=Record)


@frozen
class Charges:
    """What stands in the ledger of one node: the sum, and of how many shares."""

    charged: Resources = Resources()
    shares: int = 0

    def plus(self, other: Charges) -> Charges:
        """Both together."""
        return Charges(self.charged + other.charged, self.shares + other.shares)

    def minus(self, other: Charges) -> Charges:
        """This without ``other``."""
        return Charges(self.charged - other.charged, self.shares - other.shares)


NOTHING = Charges()


@frozen
class Touched:
    """One record that a commit changed; ``None`` where there was or is none."""

    key: Key
    before: Record | None
    after: Record | None


@frozen
class Step:
    """One commit: what it touched, and each node whose charges it changed, before and after."""

    at: datetime
    revision: int
    touched: tuple[Touched, ...]
    charges: Mapping[NodeId, tuple[Charges, Charges]]


def charge_of_record(record: Record | None) -> tuple[NodeId, Charges] | None:
    """What an assignment or a tombstone charges, and where; ``None`` for anything else."""
    match record:
        case Assignment(released=False):
            return record.node_id, Charges(record.charged, 1)
        case Tombstone():
            return record.node_id, Charges(record.held, record.shares)
        case _:
            return None


class Mirror:
    """Every record, by kind, and every node's charges. Fed by ``take`` in the order of commits.

    Size: one reading per kind of record, and the sums over them.
    """

    def __init__(self, backend: MemoryClusterBackend) -> None:
        self._backend = backend
        self._records: dict[Kind, dict[str, Versioned[Record]]] = {kind: {} for kind in Kind}
        self._charges: dict[NodeId, Charges] = {}
        self.revision = 0

    def take(self, commit: Commit, revision: int, at: datetime) -> Step:
        """Follow one commit that was just done."""
        touched = tuple(self._follow(write.key) for write in commit.writes)
        before: dict[NodeId, Charges] = {}
        for change in touched:
            self._charge(change, before)
        self.revision = revision
        charges = {node: (old, self.charges(node)) for node, old in before.items()}
        return Step(at, revision, touched, charges)

    def get(self, key: Key) -> Versioned[Record] | None:
        """The record at ``key``."""
        return self._records[key.kind].get(key.id)

    def node(self, node_id: NodeId) -> Node | None:
        return cast("Node | None", self._value(Kind.NODE, node_id))

    def workload(self, workload_id: WorkloadId) -> Workload | None:
        return cast("Workload | None", self._value(Kind.WORKLOAD, workload_id))

    def status(self, workload_id: WorkloadId) -> StatusRecord | None:
        return cast("StatusRecord | None", self._value(Kind.STATUS, workload_id))

    def assignment(self, workload_id: WorkloadId) -> Assignment | None:
        return cast("Assignment | None", self._value(Kind.ASSIGNMENT, workload_id))

    def is_assigned(self, workload_id: WorkloadId, node_id: NodeId) -> bool:
        """Whether the workload belongs to the node, its share given back or not."""
        assignment = self.assignment(workload_id)
        return assignment is not None and assignment.node_id == node_id

    def bound_to(self, node_id: NodeId) -> Iterator[WorkloadId]:
        """The workloads that are assigned to the node or owed there."""
        for placed in self.values(Kind.ASSIGNMENT, Assignment):
            if placed.node_id == node_id:
                yield placed.workload_id
        for grave in self.values(Kind.TOMBSTONE, Tombstone):
            if grave.node_id == node_id:
                yield grave.workload_id

    def allocation(self, node_id: NodeId) -> Allocation:
        """The node's ledger as recorded; an empty one where there is none."""
        return cast("Allocation | None", self._value(Kind.ALLOCATION, node_id)) or Allocation(
            node_id
        )

    def tombstone(self, node_id: NodeId, workload_id: WorkloadId) -> Tombstone | None:
        key = Key.tombstone(node_id, workload_id)
        return cast("Tombstone | None", self._value(Kind.TOMBSTONE, key.id))

    def snapshot(self) -> Snapshot:
        """Every record, as a store would show them."""
        records = {
            Key(kind, id_): stored
            for kind, found in self._records.items()
            for id_, stored in found.items()
        }
        return Snapshot(self.revision, records)

    def values(self, kind: Kind, record: type[R]) -> Iterator[R]:
        """All records of one kind, typed."""
        for stored in self._records[kind].values():
            if isinstance(stored.value, record):
                yield stored.value

    def charges(self, node_id: NodeId) -> Charges:
        """What is charged on a node, added up from assignments and tombstones."""
        return self._charges.get(node_id, NOTHING)

    def recount(self) -> dict[NodeId, Charges]:
        """Every node's charges, added up anew."""
        counted: dict[NodeId, Charges] = {}
        for kind in (Kind.ASSIGNMENT, Kind.TOMBSTONE):
            for stored in self._records[kind].values():
                if (charge := charge_of_record(stored.value)) is not None:
                    counted[charge[0]] = counted.get(charge[0], NOTHING).plus(charge[1])
        return counted

    def _value(self, kind: Kind, record_id: str) -> Record | None:
        stored = self._records[kind].get(record_id)
        return stored.value if stored else None

    def _follow(self, key: Key) -> Touched:
        before = self._value(key.kind, key.id)
        stored = self._backend.read(key)
        if stored is None:
            self._records[key.kind].pop(key.id, None)
        else:
            self._records[key.kind][key.id] = stored
        return Touched(key, before, stored.value if stored else None)

    def _charge(self, change: Touched, before: dict[NodeId, Charges]) -> None:
        old, new = charge_of_record(change.before), charge_of_record(change.after)
        if old is not None:
            node, charge = old
            before.setdefault(node, self.charges(node))
            self._charges[node] = self.charges(node).minus(charge)
        if new is not None:
            node, charge = new
            before.setdefault(node, self.charges(node))
            self._charges[node] = self.charges(node).plus(charge)

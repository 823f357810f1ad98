"""ClusterView: this replica's picture of the store, kept by its own commits and the watch.

Decided here: in which order changes are taken (by revision, newer wins) and what is indexed.
Listeners hear of every change exactly once, whether it was ours or another replica's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar, cast

from persys_core.model.cluster import ClusterMarker, LedgerState
from persys_core.model.ids import NodeId, StoreRevision, WorkloadId
from persys_core.model.node import Node
from persys_core.model.volume import Attachment, Volume, VolumeId
from persys_core.model.workload import Allocation, Assignment, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import Change, Key, Kind, Record, Snapshot, Versioned

__all__ = ["ClusterView", "Listener"]

R = TypeVar("R", bound=Record)
K = TypeVar("K")
V = TypeVar("V")
Listener = Callable[[Key, Versioned[Record] | None, Versioned[Record] | None], None]
"""Called with the key, what stood there before, and what stands there now."""


class ClusterView:
    """All records as this replica knows them, by kind, with the indexes that the loops need.

    Size: the typed accessors are one line each and belong together.
    """

    def __init__(self) -> None:
        self._records: dict[Kind, dict[str, Versioned[Record]]] = {kind: {} for kind in Kind}
        self._removed: dict[Key, StoreRevision] = {}
        self._assigned: dict[NodeId, set[WorkloadId]] = {}
        self._buried: dict[NodeId, set[WorkloadId]] = {}
        self._graves: dict[WorkloadId, set[NodeId]] = {}
        self._imported: set[WorkloadId] = set()
        self._released: dict[NodeId, set[VolumeId]] = {}
        self._volumes_of: dict[WorkloadId, set[VolumeId]] = {}
        self._attachments_of: dict[WorkloadId, set[Key]] = {}
        self._attachments_to: dict[VolumeId, set[Key]] = {}
        self._listeners: list[Listener] = []
        self.revision: StoreRevision = 0
        self.quarantined: tuple[str, ...] = ()
        self._unreadable: set[Key] = set()

    def listen(self, listener: Listener) -> None:
        """Hear of every later change."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Hear of no change any more."""
        self._listeners.remove(listener)

    # Reading

    def get(self, key: Key) -> Versioned[Record] | None:
        """The record at ``key`` as this replica knows it."""
        return self._records[key.kind].get(key.id)

    def is_unreadable(self, *keys: Key) -> bool:
        """Whether a record stands at any of ``keys`` that nobody can read: it is not absent."""
        return not self._unreadable.isdisjoint(keys)

    def all(self, kind: Kind) -> Mapping[str, Versioned[Record]]:
        """Every record of one kind, by id."""
        return self._records[kind]

    def node(self, node_id: NodeId) -> Versioned[Node] | None:
        return cast("Versioned[Node] | None", self._records[Kind.NODE].get(node_id))

    def workload(self, workload_id: WorkloadId) -> Versioned[Workload] | None:
        return cast("Versioned[Workload] | None", self._records[Kind.WORKLOAD].get(workload_id))

    def status(self, workload_id: WorkloadId) -> Versioned[StatusRecord] | None:
        return cast("Versioned[StatusRecord] | None", self._records[Kind.STATUS].get(workload_id))

    def assignment(self, workload_id: WorkloadId) -> Versioned[Assignment] | None:
        return cast("Versioned[Assignment] | None", self._records[Kind.ASSIGNMENT].get(workload_id))

    def allocation(self, node_id: NodeId) -> Versioned[Allocation] | None:
        return cast("Versioned[Allocation] | None", self._records[Kind.ALLOCATION].get(node_id))

    def tombstone(self, node_id: NodeId, workload_id: WorkloadId) -> Versioned[Tombstone] | None:
        key = Key.tombstone(node_id, workload_id)
        return cast("Versioned[Tombstone] | None", self._records[Kind.TOMBSTONE].get(key.id))

    def volume(self, volume_id: VolumeId) -> Versioned[Volume] | None:
        return cast("Versioned[Volume] | None", self._records[Kind.VOLUME].get(volume_id))

    def attachment(self, key: Key) -> Versioned[Attachment] | None:
        return cast("Versioned[Attachment] | None", self._records[Kind.ATTACHMENT].get(key.id))

    def marker(self) -> Versioned[ClusterMarker] | None:
        return cast("Versioned[ClusterMarker] | None", self._records[Kind.MARKER].get(""))

    def ledger(self) -> Versioned[LedgerState] | None:
        return cast("Versioned[LedgerState] | None", self._records[Kind.LEDGER].get(""))

    def assigned_to(self, node_id: NodeId) -> frozenset[WorkloadId]:
        """The workloads whose assignment names this node, released ones included."""
        return frozenset(self._assigned.get(node_id, ()))

    def buried_at(self, node_id: NodeId) -> frozenset[WorkloadId]:
        """The workloads of which this node owes a delete."""
        return frozenset(self._buried.get(node_id, ()))

    def graves_of(self, workload_id: WorkloadId) -> frozenset[NodeId]:
        """The nodes that owe a delete of this workload."""
        return frozenset(self._graves.get(workload_id, ()))

    def imported(self) -> frozenset[WorkloadId]:
        """The workloads whose specs, hence volumes, are not known yet."""
        return frozenset(self._imported)

    def released_from(self, node_id: NodeId) -> frozenset[VolumeId]:
        """The volumes whose holder on this node an operator answered for."""
        return frozenset(self._released.get(node_id, ()))

    def volumes_of(self, workload_id: WorkloadId) -> frozenset[VolumeId]:
        """The volumes whose records refer to this workload."""
        return frozenset(self._volumes_of.get(workload_id, ()))

    def attachments_of(self, workload_id: WorkloadId) -> frozenset[Key]:
        """Where this workload holds volumes."""
        return frozenset(self._attachments_of.get(workload_id, ()))

    def attachments_to(self, volume_id: VolumeId) -> frozenset[Key]:
        """Who holds this volume."""
        return frozenset(self._attachments_to.get(volume_id, ()))

    # Taking changes

    def load(self, snapshot: Snapshot) -> None:
        """Replace everything by ``snapshot``; what it lacks is gone, and listeners hear of it."""
        before = {Key(kind, id_) for kind, records in self._records.items() for id_ in records}
        self._removed.clear()
        for key in sorted(before - snapshot.records.keys(), key=str):
            self._set(key, None)
        for key, stored in snapshot.records.items():
            if self.get(key) != stored:
                self._set(key, stored)
        self.revision = snapshot.revision
        self.quarantined = snapshot.quarantined
        self._unreadable = set(snapshot.unreadable)

    def apply(self, revision: StoreRevision, changes: Iterable[Change]) -> None:
        """Take one commit from the watch; what is known already, or older, changes nothing."""
        for change in changes:
            # A read shows what is unreadable as absent; only a removal is told by the watch.
            self._unreadable.discard(change.key)
            self._take(change.key, change.current, revision)
        self.revision = max(self.revision, revision)

    def take_own(self, revision: StoreRevision, changes: Iterable[Change]) -> None:
        """Take a commit of this replica at once, without waiting for the watch.

        The view's revision follows only where nothing can lie in between.
        """
        for change in changes:
            self._take(change.key, change.current, revision)
        if revision == self.revision + 1:
            self.revision = revision

    def refresh(
        self, revision: StoreRevision, current: Mapping[Key, Versioned[Record] | None]
    ) -> None:
        """Take what a read or a lost race showed, as of ``revision``, without moving past it.

        The view's own revision stays: other keys may have changed that this read did not show.
        """
        for key, stored in current.items():
            self._take(key, stored, revision)

    def _take(self, key: Key, stored: Versioned[Record] | None, revision: StoreRevision) -> None:
        known = self.get(key)
        known_at = known.revision if known else self._removed.get(key, 0)
        if (stored.revision if stored else revision) <= known_at:
            return
        self._set(key, stored, revision)

    def _set(self, key: Key, stored: Versioned[Record] | None, revision: StoreRevision = 0) -> None:
        before = self._records[key.kind].get(key.id)
        if stored is None:
            self._records[key.kind].pop(key.id, None)
            self._remember_removal(key, revision)
        else:
            self._records[key.kind][key.id] = stored
            self._removed.pop(key, None)
            self._unreadable.discard(key)
        self._index(key, before, stored)
        for listener in tuple(self._listeners):
            listener(key, before, stored)

    def _remember_removal(self, key: Key, revision: StoreRevision) -> None:
        """So that a change that arrives late does not bring back what is gone."""
        self._removed[key] = revision
        if len(self._removed) > _REMOVALS_REMEMBERED:
            for old in list(self._removed)[: _REMOVALS_REMEMBERED // 2]:
                del self._removed[old]

    def _index(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        for stored, add in ((before, False), (after, True)):
            match stored.value if stored else None:
                case Assignment() as assignment:
                    _put(self._assigned, assignment.node_id, assignment.workload_id, add)
                case Tombstone() as tombstone:
                    _put(self._graves, tombstone.workload_id, tombstone.node_id, add)
                    _put(self._buried, tombstone.node_id, tombstone.workload_id, add)
                case Workload(imported=origin) as workload if origin is not None:
                    (self._imported.add if add else self._imported.discard)(workload.id)
                case Volume() as volume:
                    if volume.claim is not None and volume.claim.released_at is not None:
                        _put(self._released, volume.claim.node_id, volume.id, add)
                    for workload_id in volume.workload_refs:
                        _put(self._volumes_of, workload_id, volume.id, add)
                case Attachment() as attachment:
                    _put(self._attachments_of, attachment.workload_id, key, add)
                    _put(self._attachments_to, attachment.volume_id, key, add)
                case _:
                    pass

    def values(self, kind: Kind, record: type[R]) -> Iterator[R]:
        """The records of one kind, typed."""
        for stored in self._records[kind].values():
            if isinstance(stored.value, record):
                yield stored.value


def _put(index: dict[K, set[V]], key: K, value: V, add: bool) -> None:
    """Add ``value`` to what is indexed under ``key``, or take it away; nothing empty stays."""
    if add:
        index.setdefault(key, set()).add(value)
        return
    found = index.get(key)
    if found is None:
        return
    found.discard(value)
    if not found:
        del index[key]


_REMOVALS_REMEMBERED = 10_000

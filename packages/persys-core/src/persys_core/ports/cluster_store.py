"""ClusterStore: desired state and its ledger, written by compare-and-swap only.

Consistency duties of an implementation:

* ``snapshot`` shows all records at one revision.
* ``commit`` is all or nothing: every expectation holds and every write is done, or nothing is.
  There is no unconditional put. The store's revision grows by one with each commit that changed
  anything.
* ``watch`` delivers every later change once, in order, a commit's changes together; it resumes
  by itself after a lost connection, and answers a compacted past, or a revision that was never
  reached (a store that went back), with a ``Resync``.
* A backend that cannot answer raises ``StoreUnavailableError``; a commit whose outcome cannot be
  told raises ``AmbiguousCommitError`` after the implementation tried to find out by the token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from enum import Flag, StrEnum, auto
from typing import Generic, Protocol, TypeAlias, TypeVar

from attrs import field, frozen

from persys_core.model.cluster import ClusterMarker, LeaderRecord, LedgerState
from persys_core.model.drift import DriftRecord, DriftType
from persys_core.model.errors import PersysError
from persys_core.model.ids import NodeId, StoreRevision, WorkloadId
from persys_core.model.node import Node
from persys_core.model.replica import (
    Evictions,
    InstanceId,
    ReplicaRecord,
    ShardAcknowledgement,
    ShardMap,
)
from persys_core.model.volume import Attachment, Volume, VolumeId
from persys_core.model.workload import Allocation, Assignment, StatusRecord, Tombstone, Workload

__all__ = [
    "COORDINATION",
    "MAX_COMMIT_OPERATIONS",
    "AmbiguousCommitError",
    "Change",
    "ClusterStore",
    "Commit",
    "CommitResult",
    "CommitTooLargeError",
    "Committed",
    "Conflict",
    "Delete",
    "Expectation",
    "Guarantee",
    "Key",
    "Kind",
    "Put",
    "Record",
    "Resync",
    "Snapshot",
    "StoreFullError",
    "StoreUnavailableError",
    "Versioned",
    "WatchBatch",
    "WatchEvent",
    "Write",
]

MAX_COMMIT_OPERATIONS = 100


class StoreUnavailableError(PersysError):
    """The backend did not answer, or answered with an error of its own; nothing was written."""


class StoreFullError(StoreUnavailableError):
    """The backend has no space for what adds to it; reads and removals still work (E05)."""


class AmbiguousCommitError(StoreUnavailableError):
    """The backend failed in the middle: the commit may or may not have been applied."""


class CommitTooLargeError(PersysError):
    """More operations, or larger values, than one transaction may hold. Nothing was written."""


class Guarantee(Flag):
    """What an implementation promises; a contract suite skips only what is not declared."""

    CAS = auto()
    WATCH = auto()
    LEASE = auto()
    DURABLE = auto()
    SHARED = auto()


class Kind(StrEnum):
    """The kinds of records; each kind has one record class."""

    NODE = "node"
    WORKLOAD = "workload"
    STATUS = "status"
    ASSIGNMENT = "assignment"
    ALLOCATION = "allocation"
    TOMBSTONE = "tombstone"
    VOLUME = "volume"
    ATTACHMENT = "attachment"
    DRIFT = "drift"
    MARKER = "marker"
    LEDGER = "ledger"
    LEADER = "leader"
    REPLICA = "replica"
    SHARD_MAP = "shard-map"
    SHARD_ACK = "shard-ack"
    EVICTIONS = "evictions"


COORDINATION = frozenset(
    {Kind.LEADER, Kind.REPLICA, Kind.SHARD_MAP, Kind.SHARD_ACK, Kind.EVICTIONS}
)
"""What replicas tell each other: it says nothing of the cluster's nodes and work."""


Record: TypeAlias = (
    Node
    | Workload
    | StatusRecord
    | Assignment
    | Allocation
    | Tombstone
    | Volume
    | Attachment
    | DriftRecord
    | ClusterMarker
    | LedgerState
    | LeaderRecord
    | ReplicaRecord
    | ShardMap
    | ShardAcknowledgement
    | Evictions
)


@frozen
class Key:
    """Where a record stands. ``id`` is the node's or workload's id; singletons use ``""``.

    Size: one constructor for each kind.
    """

    kind: Kind
    id: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"

    @classmethod
    def node(cls, node_id: NodeId) -> Key:
        return cls(Kind.NODE, node_id)

    @classmethod
    def workload(cls, workload_id: WorkloadId) -> Key:
        return cls(Kind.WORKLOAD, workload_id)

    @classmethod
    def status(cls, workload_id: WorkloadId) -> Key:
        return cls(Kind.STATUS, workload_id)

    @classmethod
    def assignment(cls, workload_id: WorkloadId) -> Key:
        return cls(Kind.ASSIGNMENT, workload_id)

    @classmethod
    def allocation(cls, node_id: NodeId) -> Key:
        return cls(Kind.ALLOCATION, node_id)

    @classmethod
    def tombstone(cls, node_id: NodeId, workload_id: WorkloadId) -> Key:
        """A tombstone's id joins both with a slash, which neither id may contain."""
        return cls(Kind.TOMBSTONE, f"{node_id}/{workload_id}")

    @classmethod
    def volume(cls, volume_id: VolumeId) -> Key:
        return cls(Kind.VOLUME, volume_id)

    @classmethod
    def attachment(cls, node_id: NodeId, workload_id: WorkloadId, volume_id: VolumeId) -> Key:
        """A slash in a part is replaced, and an empty part filled, as the reference does."""
        parts = (
            part.strip().replace("/", "_") or "_" for part in (node_id, workload_id, volume_id)
        )
        return cls(Kind.ATTACHMENT, "/".join(parts))

    @classmethod
    def drift(cls, node_id: NodeId, workload_id: WorkloadId, drift_type: DriftType) -> Key:
        """An agent may report any id, so a slash in one is replaced, as the reference does."""
        workload = workload_id.replace("/", "_") or "_unknown"
        return cls(Kind.DRIFT, f"{node_id.replace('/', '_')}/{workload}/{drift_type}")

    @classmethod
    def marker(cls) -> Key:
        return cls(Kind.MARKER)

    @classmethod
    def ledger(cls) -> Key:
        return cls(Kind.LEDGER)

    @classmethod
    def leader(cls, election: str) -> Key:
        return cls(Kind.LEADER, election)

    @classmethod
    def replica(cls, instance_id: InstanceId) -> Key:
        return cls(Kind.REPLICA, instance_id)

    @classmethod
    def shard_map(cls) -> Key:
        return cls(Kind.SHARD_MAP)

    @classmethod
    def shard_ack(cls, instance_id: InstanceId) -> Key:
        return cls(Kind.SHARD_ACK, instance_id)

    @classmethod
    def evictions(cls) -> Key:
        return cls(Kind.EVICTIONS)


RecordT_co = TypeVar("RecordT_co", bound=Record, covariant=True)


@frozen
class Versioned(Generic[RecordT_co]):
    """A record with the store revision of its last change and of its creation."""

    value: RecordT_co
    revision: StoreRevision
    create_revision: StoreRevision


@frozen
class Expectation:
    """What must hold of a key for a commit to be done.

    ``revision``: the key's last change (0 = the key must not exist). ``create_revision``: the
    key's creation, whatever changed since (a fence). Exactly one of the two is set.
    """

    key: Key
    revision: StoreRevision | None = None
    create_revision: StoreRevision | None = None


@frozen
class Put:
    """Write ``value`` at ``key``."""

    key: Key
    value: Record


@frozen
class Delete:
    """Remove ``key``; removing what is not there is no error and no change."""

    key: Key


Write: TypeAlias = Put | Delete


@frozen
class Commit:
    """One all-or-nothing change.

    ``token`` identifies the commit: its writer recognises it in the watch, and an ambiguous
    outcome is resolved by it. No key is written twice. Every written key should be expected.
    """

    expects: tuple[Expectation, ...]
    writes: tuple[Write, ...]
    token: str


@frozen
class Committed:
    """The commit was done; its changes carry ``revision``."""

    revision: StoreRevision


@frozen
class Conflict:
    """An expectation did not hold; nothing was done.

    ``current`` has every expected key as it stands now (``None`` = absent), so that a loser can
    decide anew without another read; ``revision`` is the store's.
    """

    revision: StoreRevision
    current: Mapping[Key, Versioned[Record] | None] = field(factory=dict)


CommitResult: TypeAlias = Committed | Conflict


@frozen
class Snapshot:
    """Every record at one revision."""

    revision: StoreRevision
    records: Mapping[Key, Versioned[Record]]
    quarantined: tuple[str, ...] = ()
    """Keys whose records could not be read: skipped, counted, shown, never fatal."""
    unreadable: frozenset[Key] = frozenset()
    """The same as our keys: what stands there is not absent, and nothing is concluded from it."""


@frozen
class Change:
    """One key's change; ``current`` is ``None`` where it was removed."""

    key: Key
    current: Versioned[Record] | None


@frozen
class WatchBatch:
    """All changes of one commit; ``token`` is the commit's, empty where another program wrote."""

    revision: StoreRevision
    changes: tuple[Change, ...]
    token: str = ""


@frozen
class Resync:
    """The past asked for is gone: replace everything by this snapshot and go on from there."""

    snapshot: Snapshot


WatchEvent: TypeAlias = WatchBatch | Resync


class ClusterStore(Protocol):
    """See the module's docstring for the duties. All methods may raise StoreUnavailableError."""

    @property
    def guarantees(self) -> Guarantee:
        """What this implementation promises."""
        ...

    @property
    def backend_id(self) -> str:
        """The backend's own identity as it answered last; empty where it has none."""
        ...

    async def snapshot(self) -> Snapshot:
        """Every record at one revision."""
        ...

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        """The named records as they stand now, all at one revision (a read-through)."""
        ...

    async def commit(self, commit: Commit) -> CommitResult:
        """Do all of ``commit`` or nothing.

        Raises CommitTooLargeError, StoreUnavailableError, AmbiguousCommitError.
        """
        ...

    def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        """Every change after revision ``after``, in order; ends only when it is closed."""
        ...

    async def probe(self, *, writing: bool = False) -> StoreRevision:
        """Cheaply prove that the backend answers; its present revision.

        ``writing``: prove that it takes what adds to it, too; StoreFullError where it does not.
        """
        ...

    async def compact(self, before: StoreRevision) -> None:
        """What stood before revision ``before`` need not be told to watchers any more.

        A backend that keeps its history small by itself need not do anything.
        """
        ...

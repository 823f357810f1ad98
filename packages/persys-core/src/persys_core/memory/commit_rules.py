"""What makes a commit well formed, before any backend is asked.

Decided here: the limits and mistakes that every ClusterStore refuses alike; the adapters use this
too. Whether a well-formed commit is done is the backend's affair.
"""

from __future__ import annotations

from collections.abc import Mapping

from persys_core.model.cluster import ClusterMarker, LeaderRecord, LedgerState
from persys_core.model.drift import DriftRecord
from persys_core.model.node import Node
from persys_core.model.replica import Evictions, ReplicaRecord, ShardAcknowledgement, ShardMap
from persys_core.model.volume import Attachment, Volume
from persys_core.model.workload import Allocation, Assignment, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import (
    MAX_COMMIT_OPERATIONS,
    Commit,
    CommitTooLargeError,
    Expectation,
    Key,
    Kind,
    Put,
    Record,
    Versioned,
    Write,
)

__all__ = ["RECORD_CLASSES", "check_commit", "holds"]

RECORD_CLASSES: Mapping[Kind, type[Record]] = {
    Kind.NODE: Node,
    Kind.WORKLOAD: Workload,
    Kind.STATUS: StatusRecord,
    Kind.ASSIGNMENT: Assignment,
    Kind.ALLOCATION: Allocation,
    Kind.TOMBSTONE: Tombstone,
    Kind.VOLUME: Volume,
    Kind.ATTACHMENT: Attachment,
    Kind.DRIFT: DriftRecord,
    Kind.MARKER: ClusterMarker,
    Kind.LEDGER: LedgerState,
    Kind.LEADER: LeaderRecord,
    Kind.REPLICA: ReplicaRecord,
    Kind.SHARD_MAP: ShardMap,
    Kind.SHARD_ACK: ShardAcknowledgement,
    Kind.EVICTIONS: Evictions,
}


def check_commit(commit: Commit) -> None:
    """Refuse what no backend should see.

    Raises CommitTooLargeError for more expectations or more writes than a transaction may hold,
    ValueError for a mistake of the caller: a key written twice, an expectation of both
    revisions or of none, a record under a key of another kind.
    """
    size = max(len(commit.expects), len(commit.writes))
    if size > MAX_COMMIT_OPERATIONS:
        raise CommitTooLargeError(
            f"a commit of {len(commit.writes)} writes and {len(commit.expects)} expectations; at "
            f"most {MAX_COMMIT_OPERATIONS} of each are allowed: split it into several commits, "
            f"each right by itself"
        )
    for expectation in commit.expects:
        _check_expectation(expectation)
    written: set[Key] = set()
    for write in commit.writes:
        _check_write(write, written)
        written.add(write.key)


def holds(expectation: Expectation, current: Versioned[Record] | None) -> bool:
    """Whether the key as it stands now is what ``expectation`` wants; absent counts as 0."""
    if expectation.revision is not None:
        return expectation.revision == (current.revision if current else 0)
    return expectation.create_revision == (current.create_revision if current else 0)


def _check_expectation(expectation: Expectation) -> None:
    if (expectation.revision is None) == (expectation.create_revision is None):
        raise ValueError(
            f"the expectation of {expectation.key} sets both revisions or none: set either "
            f"revision or create_revision"
        )


def _check_write(write: Write, written: set[Key]) -> None:
    if write.key in written:
        raise ValueError(f"{write.key} is written twice in one commit: keep the last write only")
    if isinstance(write, Put) and not isinstance(write.value, RECORD_CLASSES[write.key.kind]):
        raise ValueError(
            f"{write.key} holds a {RECORD_CLASSES[write.key.kind].__name__}, "
            f"not a {type(write.value).__name__}"
        )

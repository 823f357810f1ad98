"""The values that go in and come out: plain, frozen, and free of protobuf.

Keys and values are bytes, revisions and lease ids integers. Deadlines are instants of the event
loop's monotonic clock, in seconds.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from attrs import frozen

__all__ = [
    "Alarm",
    "AlarmKind",
    "Compare",
    "DeleteKey",
    "DeleteResult",
    "GetKey",
    "KeyEvent",
    "KeyValue",
    "Lease",
    "LeaseStatus",
    "Member",
    "MemberStatus",
    "Operation",
    "Put",
    "PutResult",
    "RangeResult",
    "Response",
    "TxnResult",
    "WatchBatch",
    "WatchCompacted",
    "WatchEvent",
    "WatchRewound",
    "end_of_prefix",
]


@frozen
class KeyValue:
    """A key as it stands. ``version`` counts its writes since creation; ``lease`` 0 is none."""

    key: bytes
    value: bytes
    mod_revision: int
    create_revision: int
    version: int
    lease: int


@frozen
class RangeResult:
    """A read. ``revision`` and ``cluster_id`` are the store's when it answered, whatever revision
    was asked for; ``count`` counts all keys of the range, ``more`` says that some were left out."""

    revision: int
    cluster_id: int
    kvs: tuple[KeyValue, ...]
    more: bool
    count: int


@frozen
class PutResult:
    """A put was done."""

    revision: int
    cluster_id: int


@frozen
class DeleteResult:
    """How many keys were deleted."""

    revision: int
    cluster_id: int
    deleted: int


Response: TypeAlias = RangeResult | PutResult | DeleteResult


@frozen
class Compare:
    """What must be equal for a transaction's success; exactly one beside the key is given.

    ``mod_revision``, ``create_revision`` or ``version`` 0 means that the key does not exist.
    """

    key: bytes
    mod_revision: int | None = None
    create_revision: int | None = None
    version: int | None = None
    value: bytes | None = None
    lease: int | None = None

    def __attrs_post_init__(self) -> None:
        asked = (self.mod_revision, self.create_revision, self.version, self.value, self.lease)
        if sum(each is not None for each in asked) != 1:
            raise ValueError("a Compare compares exactly one property of its key")


@frozen
class Put:
    """Write a key; with ``lease`` it lives as long as that lease."""

    key: bytes
    value: bytes
    lease: int = 0


@frozen
class DeleteKey:
    """Delete a key, or all keys from ``key`` up to ``range_end``."""

    key: bytes
    range_end: bytes = b""


@frozen
class GetKey:
    """Read a key, or all keys from ``key`` up to ``range_end``."""

    key: bytes
    range_end: bytes = b""
    limit: int = 0
    keys_only: bool = False


Operation: TypeAlias = Put | DeleteKey | GetKey


@frozen
class TxnResult:
    """A transaction's outcome; ``responses`` are those of the branch that was taken, in order."""

    succeeded: bool
    revision: int
    cluster_id: int
    responses: tuple[Response, ...]


@frozen
class KeyEvent:
    """One key's change; of a deletion ``kv`` has the key and the revision of the deletion alone."""

    kv: KeyValue
    is_delete: bool

    @property
    def key(self) -> bytes:
        """The changed key."""
        return self.kv.key


@frozen
class WatchBatch:
    """All watched changes of one revision, together."""

    revision: int
    events: tuple[KeyEvent, ...]


@frozen
class WatchCompacted:
    """Changes that were not seen yet are compacted: list, compare, watch from there. The last."""

    compact_revision: int


@frozen
class WatchRewound:
    """The store is at ``revision``, before what was asked for, or is another cluster: it was
    restored or replaced, and the asked changes will never come. The last."""

    revision: int
    cluster_id: int


WatchEvent: TypeAlias = WatchBatch | WatchCompacted | WatchRewound


@frozen
class Lease:
    """A granted lease of ``ttl`` seconds; ``deadline`` counts from the sending of the request."""

    id: int
    ttl: int
    deadline: float


@frozen
class LeaseStatus:
    """What is left of a lease, in seconds."""

    id: int
    ttl: int
    granted_ttl: int
    keys: tuple[bytes, ...] = ()


@frozen
class Member:
    """A member of the cluster; one that never started has no name."""

    id: int
    name: str
    client_urls: tuple[str, ...]
    peer_urls: tuple[str, ...]
    is_learner: bool


@frozen
class MemberStatus:
    """What one member says of itself; sizes in bytes. ``leader`` 0 is none."""

    endpoint: str
    cluster_id: int
    member_id: int
    version: str
    db_size: int
    db_size_in_use: int
    leader: int
    raft_index: int
    raft_term: int
    errors: tuple[str, ...]
    revision: int
    is_learner: bool


class AlarmKind(IntEnum):
    """What a member raised an alarm for."""

    NOSPACE = 1
    CORRUPT = 2


@frozen
class Alarm:
    """An alarm of a member; it stands until it is disarmed."""

    member_id: int
    kind: AlarmKind


def end_of_prefix(prefix: bytes) -> bytes:
    """The ``range_end`` of all keys that begin with ``prefix``; for an empty one, of all keys."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return b"\x00"
    return stripped[:-1] + bytes([stripped[-1] + 1])

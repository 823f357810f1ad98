"""Where each record stands in a key-value store.

Nodes, workloads, assignments, drifts, volumes and attachments have the reference's keys, so that
its data is found in place; everything of ours lies under ``/persys/``. What stands in a value is
decided in ``codec``.
"""

from __future__ import annotations

from collections.abc import Mapping

from persys_core.ports.cluster_store import Key, Kind

__all__ = [
    "LEADER_PREFIX",
    "LEGACY_PREFIX",
    "NODE_STATUS_SUFFIX",
    "PREFIXES",
    "PROBE_PATH",
    "key_at",
    "path_of",
]

_FOLDERS: Mapping[Kind, str] = {
    Kind.NODE: "/nodes/",
    Kind.WORKLOAD: "/workloads-spec/",
    Kind.STATUS: "/workloads-status/",
    Kind.ASSIGNMENT: "/assignments/",
    Kind.DRIFT: "/drifts/",
    Kind.VOLUME: "/volumes/",
    Kind.ATTACHMENT: "/attachments/",
    Kind.ALLOCATION: "/persys/allocations/",
    Kind.TOMBSTONE: "/persys/tombstones/",
    Kind.LEADER: "/persys/scheduler/leader/",
    Kind.REPLICA: "/persys/replicas/",
    Kind.SHARD_ACK: "/persys/shards/acks/",
}
_SINGLES: Mapping[Kind, str] = {
    Kind.MARKER: "/persys/cluster",
    Kind.LEDGER: "/persys/ledger",
    Kind.SHARD_MAP: "/persys/shards/map",
    Kind.EVICTIONS: "/persys/evictions",
}
_SINGLE_AT: Mapping[str, Kind] = {path: kind for kind, path in _SINGLES.items()}
LEGACY_PREFIX = "/workloads/"
"""Old objects of the reference, each with the spec and the status of a workload (``legacy``)."""

NODE_STATUS_SUFFIX = "/status"
"""After a node's path: a shadow of its status, which nobody reads."""

LEADER_PREFIX = _FOLDERS[Kind.LEADER]
PROBE_PATH = "/persys/probe"
"""No record: what is put there shows that the store takes what adds to it."""
PREFIXES: tuple[str, ...] = (*_FOLDERS.values(), *_SINGLES.values(), LEGACY_PREFIX)
"""The key prefixes under which all records stand; other keys may stand there, too."""


def path_of(key: Key) -> str:
    """The path of ``key`` in the store."""
    if key.kind in _SINGLES:
        return _SINGLES[key.kind]
    return _FOLDERS[key.kind] + key.id


def key_at(path: str) -> Key | None:
    """The key that stands at ``path``; ``None`` for what is no record of ours.

    An id may be odd (another scheduler wrote it): all of the path after the folder is the id.
    Only the shadow of a node's status (``/nodes/{id}/status``) is no node.
    """
    if path in _SINGLE_AT:
        return Key(_SINGLE_AT[path])
    for kind, folder in _FOLDERS.items():
        if path.startswith(folder) and len(path) > len(folder):
            shadow = kind is Kind.NODE and path.endswith(NODE_STATUS_SUFFIX)
            return None if shadow else Key(kind, path.removeprefix(folder))
    return None

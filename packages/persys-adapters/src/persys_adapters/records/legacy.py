"""The reference's older layout: one object per workload, with its spec and its status in it.

Decided here: which fields of ``/workloads/{id}`` are of the spec and which of the status, so that
each half is read as if it stood at its own key, and which keys of the reference go with a record
that is removed. Where both layouts hold an id the split record wins, half by half and whole: the
reference writes the split one at each save and never touches the old object again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from persys_adapters.records.json_values import JsonObject, dumped, parsed
from persys_adapters.records.layout import LEGACY_PREFIX, NODE_STATUS_SUFFIX, path_of
from persys_adapters.records.statuses import with_short_logs
from persys_core.ports.cluster_store import Key, Kind

__all__ = ["HALVES", "halves_of", "leftovers", "legacy_id", "legacy_path"]

HALVES = (Kind.WORKLOAD, Kind.STATUS)
"""The kinds of records that one legacy object holds."""

_OF_STATUS = frozenset({
    "assignedNode", "nodeId", "status", "logs", "metadata", "retry", "statusInfo", "usage"
})  # fmt: skip
_WRITE_ONLY = ("/retries/", "/reconciliation/")


def legacy_path(workload_id: str) -> str:
    """Where the old object of a workload stands."""
    return LEGACY_PREFIX + workload_id


def legacy_id(path: str) -> str:
    """The workload whose old object stands at ``path``; empty for any other path."""
    return path.removeprefix(LEGACY_PREFIX) if path.startswith(LEGACY_PREFIX) else ""


def halves_of(raw: bytes) -> Mapping[Kind, bytes]:
    """The value of each half as it would stand at its own key; each field is in one of them.

    Fields that nobody here knows go with the spec. Nothing is found in what is no JSON object.
    """
    try:
        value = parsed(raw)
    except ValueError:
        return {}
    spec = {name: part for name, part in value.items() if name not in _OF_STATUS}
    status: JsonObject = {name: part for name, part in value.items() if name in _OF_STATUS}
    if "id" in value:
        status = {"id": value["id"], **status}
    return {Kind.WORKLOAD: dumped(spec), Kind.STATUS: dumped(with_short_logs(status))}


def leftovers(key: Key) -> Sequence[str]:
    """The paths that go with ``key`` when it is removed: nobody reads them, and they would stay."""
    match key.kind:
        case Kind.WORKLOAD:
            return (legacy_path(key.id), *(folder + key.id for folder in _WRITE_ONLY))
        case Kind.NODE:
            return (path_of(key) + NODE_STATUS_SUFFIX,)
        case _:
            return ()

"""Records to bytes and back, for every kind; what we do not know survives.

Decided here: that a record which cannot be read is told apart (``UnreadableRecordError``) and
never guessed, and that the fields of a newer or another writer are given back with the record, so
that the next writer adds them again. Shapes stand in the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import field, frozen

from persys_adapters.records.json_values import (
    JsonObject,
    Known,
    dumped,
    from_json,
    known_names,
    merged,
    parsed,
    to_json,
    unknown_in,
)
from persys_adapters.records.nodes import StoredNode, node_from, node_json
from persys_adapters.records.placements import StoredAssignment, assignment_from, assignment_json
from persys_adapters.records.statuses import (
    StoredStatus,
    status_from,
    status_json,
    with_short_logs,
)
from persys_adapters.records.volumes import (
    AttachmentExtras,
    StoredAttachment,
    StoredVolume,
    VolumeExtras,
    attachment_from,
    attachment_json,
    volume_from,
    volume_json,
)
from persys_adapters.records.workloads import (
    SpecExtras,
    StoredWorkload,
    workload_from,
    workload_json,
)
from persys_core.model.cluster import ClusterMarker, LeaderRecord, LedgerState
from persys_core.model.drift import DriftRecord
from persys_core.model.errors import PersysError
from persys_core.model.node import Node
from persys_core.model.replica import Evictions, ReplicaRecord, ShardAcknowledgement, ShardMap
from persys_core.model.workload import Allocation, Assignment, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import Key, Kind, Record

__all__ = ["Decoded", "UnreadableRecordError", "decode", "encode"]

_OURS = "persys"
_TOKEN = "token"


class UnreadableRecordError(PersysError):
    """A stored value that is not the record its key promises; the text names key and cause."""


@frozen
class Decoded:
    """A record, the token of the commit that wrote it, and what else stood in its value."""

    record: Record
    token: str = ""
    unknown: JsonObject = field(factory=dict)


@frozen
class _Form:
    """How one kind is stored: the way there and back, the names we know, the id in the key."""

    to_json: Callable[[Any], JsonObject]
    from_json: Callable[[JsonObject], Record]
    known: Known
    ids: tuple[str, ...] = ()
    """The JSON names of the fields that the key's id names, in its order."""
    shortened: Callable[[JsonObject], JsonObject] = dict
    """What of a stored value is read and kept."""


def _plain(kind: type[Record], *ids: str) -> _Form:
    """A record of ours alone: its fields stand at the top, only the token under ``persys``."""
    return _Form(to_json, partial(from_json, kind=kind), {**known_names(kind), _OURS: {}}, ids)


def _joined(stored: type, record: type, **inside: Known) -> Known:
    """The names of the reference's form, and under ``persys`` those of our record."""
    return {**known_names(stored), _OURS: {**known_names(record), **inside}}


_FORMS: Mapping[Kind, _Form] = {
    Kind.NODE: _Form(node_json, node_from, _joined(StoredNode, Node), ("nodeId",)),
    Kind.WORKLOAD: _Form(
        workload_json,
        workload_from,
        _joined(StoredWorkload, Workload, spec=known_names(SpecExtras)),
        ("id",),
    ),
    Kind.STATUS: _Form(
        status_json,
        status_from,
        _joined(StoredStatus, StatusRecord),
        ("id",),
        shortened=with_short_logs,
    ),
    Kind.ASSIGNMENT: _Form(
        assignment_json, assignment_from, _joined(StoredAssignment, Assignment), ("workloadId",)
    ),
    Kind.ALLOCATION: _plain(Allocation, "nodeId"),
    Kind.TOMBSTONE: _plain(Tombstone, "nodeId", "workloadId"),
    Kind.DRIFT: _plain(DriftRecord, "nodeId", "workloadId", "driftType"),
    Kind.VOLUME: _Form(
        volume_json,
        volume_from,
        {**known_names(StoredVolume), _OURS: known_names(VolumeExtras)},
        ("id",),
    ),
    Kind.ATTACHMENT: _Form(
        attachment_json,
        attachment_from,
        {**known_names(StoredAttachment), _OURS: known_names(AttachmentExtras)},
        ("nodeId", "workloadId", "volumeId"),
    ),
    Kind.MARKER: _plain(ClusterMarker),
    Kind.LEDGER: _plain(LedgerState),
    Kind.LEADER: _plain(LeaderRecord, "election"),
    Kind.REPLICA: _plain(ReplicaRecord, "instanceId"),
    Kind.SHARD_MAP: _plain(ShardMap),
    Kind.SHARD_ACK: _plain(ShardAcknowledgement, "instanceId"),
    Kind.EVICTIONS: _plain(Evictions),
}


def encode(key: Key, record: Record, token: str = "", unknown: JsonObject | None = None) -> bytes:
    """The stored form of ``record``: JSON that carries ``token`` and, again, ``unknown``."""
    value = _FORMS[key.kind].to_json(record)
    if token:
        value[_OURS] = {_TOKEN: token, **value.get(_OURS, {})}
    return dumped(merged(value, unknown) if unknown else value)


def decode(key: Key, raw: bytes) -> Decoded:
    """The record in ``raw``. Raises UnreadableRecordError, whatever is wrong with it."""
    try:
        return _decode(key, raw)
    except Exception as error:
        # A value that another program wrote can be wrong in any way; none may stop the reading.
        raise UnreadableRecordError(
            f"the record of {key} cannot be read ({type(error).__name__}: {error}): it is left "
            f"as it is; repair or remove it"
        ) from error


def _decode(key: Key, raw: bytes) -> Decoded:
    if key.kind is Kind.LEADER and not raw.startswith(b"{"):
        return Decoded(LeaderRecord(key.id.rpartition("/")[0], raw.decode()))
    form = _FORMS[key.kind]
    value = form.shortened(parsed(raw))
    record = form.from_json({**_ids(key, form), **value})
    ours = value.get(_OURS)
    token = ours.pop(_TOKEN, "") if isinstance(ours, dict) else ""
    return Decoded(record, str(token), unknown_in(value, form.known))


def _ids(key: Key, form: _Form) -> JsonObject:
    """What the key says of the ids, for a value that does not say it."""
    parts = key.id.split("/", len(form.ids) - 1) if len(form.ids) > 1 else [key.id]
    return dict(zip(form.ids, parts, strict=False))

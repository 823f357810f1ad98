"""``Wish``: an ApplyWorkload message in the core's words, and as it is kept on disk.

Decided here: what makes two specs the same. The hash is over the message's fields by name, sorted,
so that neither another release of protobuf nor a field that nobody has set makes another hash.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from attrs import evolve, frozen
from google.protobuf import json_format

from persys_agent.specs import BadSpecError, apply_request
from persys_agent.state.records import Workload
from persys_core.model.ids import RevisionId, WorkloadId
from persys_core.model.resources import Resources
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState
from persys_proto.agent.v1 import agent_pb2 as wire

__all__ = ["Wish", "spec_kept", "wish_from", "wish_kept"]

_SPEC_FIELDS = ("type", "spec", "resources")
_KEPT_WISHES = 4096


@frozen
class Wish:
    """What the scheduler wants of a workload. ``request`` is the message as JSON."""

    workload_id: WorkloadId
    revision_id: RevisionId
    spec_hash: str
    desired_state: DesiredState
    spec: WorkloadSpec
    request: str

    @property
    def requested(self) -> Resources:
        """What admission counts."""
        return self.spec.resources


def wish_from(message: wire.ApplyWorkloadRequest) -> Wish:
    """The wish of a message. Raises ``BadSpecError`` where it makes no sense."""
    told = apply_request(message, 0)
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    hashed = json.dumps({name: fields.get(name) for name in _SPEC_FIELDS}, sort_keys=True)
    return Wish(
        message.id,
        message.revision_id,
        hashlib.sha256(hashed.encode()).hexdigest(),
        told.desired_state,
        _with_request(told.spec, message),
        json.dumps(fields, sort_keys=True),
    )


@lru_cache(_KEPT_WISHES)
def wish_kept(request: str) -> Wish:
    """The wish that was kept as ``request``; one that this release cannot read any more raises
    ``BadSpecError``."""
    try:
        message = json_format.Parse(
            request, wire.ApplyWorkloadRequest(), ignore_unknown_fields=True
        )
    except json_format.ParseError as error:
        raise BadSpecError("[INVALID_SPEC] what was kept of it cannot be read") from error
    return wish_from(message)


def spec_kept(row: Workload) -> WorkloadSpec | None:
    """The spec of a row; ``None`` where this release cannot read it any more."""
    try:
        return wish_kept(row.request).spec
    except BadSpecError:
        return None


def _with_request(spec: WorkloadSpec, message: wire.ApplyWorkloadRequest) -> WorkloadSpec:
    """What it was placed with is what it is held to; older schedulers send only the spec."""
    if not message.HasField("resources"):
        return spec
    asked = message.resources
    return evolve(
        spec,
        resources=Resources.of(
            cpu_millicores=asked.cpu_millicores, memory_mb=asked.memory_mb, disk_gb=asked.disk_gb
        ),
    )

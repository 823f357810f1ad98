"""Requests about workloads: apply, plan, delete, retry, read and explain.

Decided here: what makes a specification acceptable, and which defaults it gets, so that leaving a
field out and writing its default are the same wish (field report A02).
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, frozen

from persys_core.control.requests import ApplyWorkload
from persys_core.model.constraints import constraint_errors
from persys_core.model.ids import StoreRevision
from persys_core.model.resources import CPU, DISK, MAX_AMOUNT, MEMORY, Resources
from persys_core.model.spec import ContainerSpec, SpecBody, VmSpec, WorkloadSpec
from persys_core.model.states import WorkloadType
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.common_in import WORKLOAD_TYPES, desired_state_of, labels_of
from persys_server.grpc.mapping.compose_in import compose_spec
from persys_server.grpc.mapping.container_in import container_spec
from persys_server.grpc.mapping.fields import Fields, quoted
from persys_server.grpc.mapping.limits import MAX_METADATA, MAX_SPEC_BYTES, MAX_TEXT
from persys_server.grpc.mapping.vm_in import vm_resources, vm_spec
from persys_server.grpc.mapping.vm_payload import PAYLOAD_KEY, payload_spec

__all__ = [
    "PlanOne",
    "ReadOne",
    "apply_workload",
    "explain_request",
    "named_workload",
    "plan_request",
    "read_workload",
]

_ARMS = {
    WorkloadType.CONTAINER: "container",
    WorkloadType.COMPOSE: "compose",
    WorkloadType.VM: "vm",
    WorkloadType.MICROVM: "vm",
}
_KINDS = {str(kind): kind for kind in WorkloadType}
_MAX_EXAMPLES = 100
_DEFAULT_EXAMPLES = 3
_MAX_REVISION = 2**63 - 1
_NOTHING = ContainerSpec(image="")
"""Stands for a body that cannot be read; the request is refused before anyone sees it."""


@frozen
class ReadOne:
    """One object to read, at least as new as a store revision."""

    id: str
    at_least: StoreRevision = 0
    max_examples: int = _DEFAULT_EXAMPLES


@frozen
class PlanOne:
    """An apply to plan, seen at least as new as a store revision."""

    wish: ApplyWorkload
    at_least: StoreRevision = 0
    max_examples: int = _DEFAULT_EXAMPLES


def apply_workload(message: pb.ApplyWorkloadRequest) -> ApplyWorkload:
    """The wish in ``message``; raises ``InvalidInputError`` that names every wrong field.

    Without ``spec`` only the desired state changes (decisions, 2.6), so that is needed then.
    """
    fields = Fields()
    request = _wish(fields, message)
    fields.finish()
    return request


def plan_request(message: pb.PlanWorkloadRequest) -> PlanOne:
    """Which apply to plan, with how many examples per reason."""
    fields = Fields()
    fields.amount("min_revision", message.min_revision, _MAX_REVISION, "")
    fields.amount("max_examples", message.max_examples, _MAX_EXAMPLES, "nodes")
    # Paths are those of the apply: whoever plans has written nothing but a workload.
    wish = _wish(fields, message.apply)
    fields.finish()
    return PlanOne(wish, message.min_revision, message.max_examples or _DEFAULT_EXAMPLES)


def _wish(fields: Fields, message: pb.ApplyWorkloadRequest) -> ApplyWorkload:
    has_spec = message.HasField("spec")
    identify = fields.new_id if has_spec else fields.existing_id
    expected = message.expected_revision if message.HasField("expected_revision") else None
    request = ApplyWorkload(
        workload_id=identify("workload_id", message.workload_id),
        spec=_spec(fields.inside("spec"), message.spec) if has_spec else None,
        desired_state=desired_state_of(fields, message.desired_state),
        client_revision_id=fields.text("revision_id", message.revision_id, at_most=253),
        expected_revision=expected,
    )
    fields.amount("expected_revision", expected or 0, _MAX_REVISION, "")
    if not has_spec and not message.desired_state.strip():
        fields.add("spec", "spec or desired_state is required")
    return request


def named_workload(workload_id: str) -> str:
    """The id of a workload that exists; ids that older schedulers allowed pass."""
    fields = Fields()
    fields.existing_id("workload_id", workload_id)
    fields.finish()
    return workload_id


def read_workload(message: pb.GetWorkloadRequest) -> ReadOne:
    """Which workload to show."""
    fields = Fields()
    fields.existing_id("workload_id", message.workload_id)
    fields.amount("min_revision", message.min_revision, 2**63 - 1, "")
    fields.finish()
    return ReadOne(message.workload_id, message.min_revision)


def explain_request(message: pb.ExplainWorkloadRequest) -> ReadOne:
    """Which workload to explain, with how many examples per reason."""
    fields = Fields()
    fields.existing_id("workload_id", message.workload_id)
    fields.amount("min_revision", message.min_revision, 2**63 - 1, "")
    fields.amount("max_examples", message.max_examples, _MAX_EXAMPLES, "nodes")
    fields.finish()
    examples = message.max_examples or _DEFAULT_EXAMPLES
    return ReadOne(message.workload_id, message.min_revision, examples)


def _spec(fields: Fields, message: pb.WorkloadSpec) -> WorkloadSpec:
    if message.ByteSize() > MAX_SPEC_BYTES:
        fields.add("", f"has more than the accepted {MAX_SPEC_BYTES} bytes")
        fields.finish()
    kind = _type(fields, message)
    metadata = _metadata(fields, message.metadata)
    asked = _resources(fields.inside("resources"), message.resources)
    body = _body(fields, message, kind, asked)
    if isinstance(body, VmSpec):
        asked = vm_resources(body, asked)
    return WorkloadSpec(type=kind, resources=asked, body=body, metadata=metadata)


def _type(fields: Fields, message: pb.WorkloadSpec) -> WorkloadType:
    given = message.type.strip().lower()
    if not given:
        fields.add("type", f"type is required; accepted is one of {', '.join(_KINDS)}")
    elif given not in WORKLOAD_TYPES:
        fields.add(
            "type",
            f"unsupported workload type {quoted(message.type)}; accepted is one of"
            f" {', '.join(_KINDS)}",
        )
    return WORKLOAD_TYPES.get(given, WorkloadType.CONTAINER)


def _metadata(fields: Fields, values: Mapping[str, str]) -> dict[str, str]:
    metadata = {key: value for key, value in values.items() if key != PAYLOAD_KEY}
    labels_of(fields, "metadata", metadata, at_most=MAX_METADATA, value_length=MAX_TEXT)
    fields.extend(constraint_errors(metadata))
    return metadata


def _resources(fields: Fields, message: pb.ResourceRequirements) -> Resources:
    return Resources.of(
        cpu_millicores=fields.amount(
            "cpu_millicores", message.cpu_millicores, MAX_AMOUNT[CPU], "millicores"
        ),
        memory_mb=fields.amount("memory_mb", message.memory_mb, MAX_AMOUNT[MEMORY], "MB"),
        disk_gb=fields.amount("disk_gb", message.disk_gb, MAX_AMOUNT[DISK], "GB"),
    )


def _body(
    fields: Fields, message: pb.WorkloadSpec, kind: WorkloadType, asked: Resources
) -> SpecBody:
    arm, given = _ARMS[kind], message.WhichOneof("workload")
    payload = message.metadata.get(PAYLOAD_KEY, "")
    if payload and arm != "vm":
        fields.add(f"metadata[{PAYLOAD_KEY}]", "belongs to workloads of type vm or microvm only")
    if payload and arm == "vm":
        place = fields.inside(f"metadata[{PAYLOAD_KEY}]")
        return _with_runtime(payload_spec(place, payload), kind)
    if given != arm:
        fields.add(arm, f"{arm} spec required" + (f", but {given} is set" if given else ""))
        return _NOTHING
    place = fields.inside(arm)
    match arm:
        case "container":
            return container_spec(place, message.container)
        case "compose":
            return compose_spec(place, message.compose)
        case _:
            return _with_runtime(vm_spec(place, message.vm, asked), kind)


def _with_runtime(spec: VmSpec, kind: WorkloadType) -> VmSpec:
    """A microVM runs on Firecracker whether or not the request says so."""
    if kind is WorkloadType.MICROVM and not spec.runtime:
        return evolve(spec, runtime="firecracker")
    return spec

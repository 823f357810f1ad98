"""`persys.agent.v1` requests in the core's words.

Decided here: what an agent makes of a message. Whether the workload can run is the model's
decision; a message that makes no sense raises ``BadSpecError``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping

from attrs import evolve

from persys_core.model.errors import PersysError
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    CloudInit,
    ComposeSpec,
    ContainerSpec,
    DiskSpec,
    ManagedVolume,
    NetworkSpec,
    PortMapping,
    VmSpec,
    VolumeMount,
    WorkloadSpec,
)
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_core.ports.agents import ApplyRequest
from persys_proto.agent.v1 import agent_pb2 as wire

__all__ = ["BadSpecError", "apply_request", "workload_type"]

_BYTES_PER_MB = 1024 * 1024
_MILLICORES_PER_CPU = 1000
_NO_SPEC = "invalid request: spec must contain container, compose, or vm specification"
_TYPES: Mapping[int, WorkloadType] = {
    wire.WORKLOAD_TYPE_CONTAINER: WorkloadType.CONTAINER,
    wire.WORKLOAD_TYPE_COMPOSE: WorkloadType.COMPOSE,
    wire.WORKLOAD_TYPE_VM: WorkloadType.VM,
    wire.WORKLOAD_TYPE_MICROVM: WorkloadType.MICROVM,
}


class BadSpecError(PersysError):
    """The request cannot be carried out as it is; the text goes back to the caller."""


def apply_request(message: wire.ApplyWorkloadRequest, epoch: int) -> ApplyRequest:
    """The request in the core's words. Raises ``BadSpecError``.

    An unspecified desired state is running, an unspecified type that of the spec that is set.
    """
    stopped = message.desired_state == wire.DESIRED_STATE_STOPPED
    return ApplyRequest(
        workload_id=message.id,
        revision_id=message.revision_id,
        desired_state=DesiredState.STOPPED if stopped else DesiredState.RUNNING,
        spec=_as_placed(_spec(message), message),
        epoch=epoch,
    )


def _as_placed(spec: WorkloadSpec, message: wire.ApplyWorkloadRequest) -> WorkloadSpec:
    """With what our scheduler says beside the spec: what it was placed with replaces what its body
    asks, and the metadata that is meant for an agent joins its labels."""
    spec = evolve(spec, metadata={**spec.metadata, **message.metadata})
    if not message.HasField("resources"):
        return spec
    asked = message.resources
    resources = Resources.of(
        cpu_millicores=asked.cpu_millicores, memory_mb=asked.memory_mb, disk_gb=asked.disk_gb
    )
    return evolve(spec, resources=resources)


def workload_type(number: int) -> WorkloadType | None:
    """The type that a filter names; ``None`` for no filter."""
    return _TYPES.get(number)


def _spec(message: wire.ApplyWorkloadRequest) -> WorkloadSpec:
    match message.spec.WhichOneof("spec"):
        case "container":
            return _container(message.spec.container)
        case "compose":
            return WorkloadSpec(WorkloadType.COMPOSE, Resources(), _compose(message.spec.compose))
        case "vm":
            is_micro = message.type == wire.WORKLOAD_TYPE_MICROVM
            kind = WorkloadType.MICROVM if is_micro else WorkloadType.VM
            return _machine(kind, message.spec.vm)
        case _:
            raise BadSpecError(_NO_SPEC)


def _container(body: wire.ContainerSpec) -> WorkloadSpec:
    resources = Resources.of(
        cpu_millicores=body.resources.cpu_shares,
        memory_mb=body.resources.memory_bytes // _BYTES_PER_MB,
    )
    container = ContainerSpec(
        image=body.image,
        command=(*body.command, *body.args),
        env=dict(body.env),
        volumes=tuple(
            VolumeMount(each.host_path, each.container_path, each.read_only)
            for each in body.volumes
        ),
        ports=tuple(
            PortMapping(each.host_port, each.container_port, each.protocol or "tcp")
            for each in body.ports
        ),
        restart_policy=_restart_policy(body.restart_policy.policy),
        privileged=body.privileged,
        managed_volumes=_volumes(body.managed_volumes),
    )
    return WorkloadSpec(WorkloadType.CONTAINER, resources, container, dict(body.labels))


def _restart_policy(text: str) -> RestartPolicy:
    try:
        return RestartPolicy(text or "no")
    except ValueError:
        accepted = ", ".join(RestartPolicy)
        raise BadSpecError(
            f'[INVALID_SPEC] restart policy "{text}" is not one of {accepted}'
        ) from None


def _compose(body: wire.ComposeSpec) -> ComposeSpec:
    return ComposeSpec(inline_yaml=_compose_text(body.compose_yaml), env=dict(body.env))


def _compose_text(payload: str) -> str:
    """Base64, or plain YAML that looks like it."""
    try:
        decoded = base64.b64decode(payload, validate=True).decode()
    except (binascii.Error, ValueError):
        decoded = ""
    if decoded:
        return decoded
    if "\n" in payload or "services:" in payload or payload.startswith("version:"):
        return payload
    raise BadSpecError("[INVALID_SPEC] compose_yaml is neither base64 nor a Compose file")


def _machine(kind: WorkloadType, body: wire.VMSpec) -> WorkloadSpec:
    resources = Resources.of(
        cpu_millicores=body.vcpus * _MILLICORES_PER_CPU,
        memory_mb=body.memory_mb,
        disk_gb=body.disk_gb or sum(each.size_gb for each in body.disks),
    )
    machine = VmSpec(
        vcpus=body.vcpus,
        memory_mb=body.memory_mb,
        disks=tuple(map(_disk, body.disks)),
        networks=tuple(map(_network, body.networks)),
        cloud_init=_cloud_init(body.cloud_init_config),
        cloud_init_text=body.cloud_init,
        os_image=body.os_image,
        disk_gb=body.disk_gb,
        runtime=body.runtime,
        name=body.name,
        metadata=dict(body.metadata),
        managed_volumes=_volumes(body.managed_volumes),
    )
    return WorkloadSpec(kind, resources, machine)


def _disk(each: wire.DiskConfig) -> DiskSpec:
    return DiskSpec(
        size_gb=each.size_gb,
        path=each.path,
        device=each.device,
        format=each.format,
        type=each.type or "disk",
        boot=each.boot,
        backing_file=each.backing_file,
        storage=each.storage,
    )


def _network(each: wire.NetworkConfig) -> NetworkSpec:
    return NetworkSpec(
        bridge=each.bridge,
        static_ip=each.ip_address,
        network=each.network,
        mac_address=each.mac_address,
        host_dev_name=each.host_dev_name,
        model=each.model,
    )


def _cloud_init(given: wire.CloudInitConfig) -> CloudInit:
    return CloudInit(
        user_data=given.user_data,
        meta_data=given.meta_data,
        network_config=given.network_config,
        vendor_data=given.vendor_data,
        username=given.username,
        ssh_public_key=given.ssh_public_key,
        password=given.password,
    )


def _volumes(volumes: Iterable[wire.ManagedVolumeSpec]) -> tuple[ManagedVolume, ...]:
    return tuple(
        ManagedVolume(
            name=each.name,
            driver=each.driver or "local",
            size_gb=each.size_gb,
            access_mode=each.access_mode,
            fs_type=each.fs_type,
            mount_path=each.mount_path,
            read_only=each.read_only,
            retain_policy=each.retain_policy or "Delete",
        )
        for each in volumes
    )

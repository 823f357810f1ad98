"""A workload's spec as the agents want it: `persys_core.model.spec` to `persys.agent.v1`.

Decided here: which field of ours becomes which of theirs, and the defaults that agents expect to
be filled in. A spec that their contract cannot express raises ``SpecNotExpressibleError``.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping

from google.protobuf import json_format

from persys_core.model.errors import PersysError
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    DiskSpec,
    ManagedVolume,
    NetworkSpec,
    VmSpec,
    WorkloadSpec,
)
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.agents import ApplyRequest
from persys_proto.agent.v1 import agent_pb2 as wire

__all__ = ["SpecNotExpressibleError", "apply_message", "sent_secrets"]

VM_SPEC_KEY = "persys.vm_spec_b64"
_BOOKKEEPING_PREFIX = "persys."
_AGENT_PREFIX = "persys.agent."
_BOOKKEEPING_KEYS = frozenset({"allow_move", "disk_ids"})
_BYTES_PER_MB = 1024 * 1024
_MILLICORES_PER_CPU = 1000
_DISK_GB = 20
_IMAGES = "/var/lib/libvirt/images"
_FIRECRACKER = "firecracker"
_DEFAULT_NETWORK = "default"
_NOT_IN_PROJECT_NAME = re.compile(r"[^a-z0-9]+")
_TYPES = {
    WorkloadType.CONTAINER: wire.WORKLOAD_TYPE_CONTAINER,
    WorkloadType.COMPOSE: wire.WORKLOAD_TYPE_COMPOSE,
    WorkloadType.VM: wire.WORKLOAD_TYPE_VM,
    WorkloadType.MICROVM: wire.WORKLOAD_TYPE_MICROVM,
}


class SpecNotExpressibleError(PersysError):
    """No message to an agent can say what this spec asks for; the text names the field."""


def apply_message(request: ApplyRequest) -> wire.ApplyWorkloadRequest:
    """The request message. Raises ``SpecNotExpressibleError``."""
    stopped = request.desired_state is DesiredState.STOPPED
    return wire.ApplyWorkloadRequest(
        id=request.workload_id,
        type=_TYPES[request.spec.type],
        revision_id=request.revision_id,
        desired_state=wire.DESIRED_STATE_STOPPED if stopped else wire.DESIRED_STATE_RUNNING,
        spec=_spec(request.workload_id, request.spec),
        resources=_resources(request.spec.resources),
        metadata=_for_the_agent(request.spec.metadata),
    )


def _resources(asked: Resources) -> wire.RequestedResources | None:
    """What it was placed with; Compose has no other place to say so."""
    if not any((asked.cpu_millicores, asked.memory_mb, asked.disk_gb)):
        return None
    return wire.RequestedResources(
        cpu_millicores=asked.cpu_millicores, memory_mb=asked.memory_mb, disk_gb=asked.disk_gb
    )


def sent_secrets(message: wire.ApplyWorkloadRequest) -> frozenset[str]:
    """Secrets that only the message shows, since they came inside an encoded machine spec."""
    password = message.spec.vm.cloud_init_config.password
    return frozenset((password,)) if password else frozenset()


def _spec(workload_id: str, spec: WorkloadSpec) -> wire.WorkloadSpec:
    match spec.body:
        case ContainerSpec() as body:
            return wire.WorkloadSpec(container=_container(spec, body))
        case ComposeSpec() as body:
            return wire.WorkloadSpec(compose=_compose(workload_id, body))
        case VmSpec() as body:
            return wire.WorkloadSpec(vm=_machine(workload_id, spec, body))


def _container(spec: WorkloadSpec, body: ContainerSpec) -> wire.ContainerSpec:
    return wire.ContainerSpec(
        image=body.image,
        command=body.command,
        env=body.env,
        volumes=[
            wire.VolumeMount(
                host_path=each.host_path,
                container_path=each.container_path,
                read_only=each.read_only,
            )
            for each in body.volumes
        ],
        ports=[
            wire.PortMapping(
                host_port=each.host_port,
                container_port=each.container_port,
                protocol=each.protocol,
            )
            for each in body.ports
        ],
        resources=wire.ResourceLimits(
            cpu_shares=spec.resources.cpu_millicores,
            memory_bytes=spec.resources.memory_mb * _BYTES_PER_MB,
        ),
        restart_policy=wire.RestartPolicy(policy=body.restart_policy),
        labels=_labels(spec.metadata),
        managed_volumes=_volumes(body.managed_volumes),
        privileged=body.privileged,
    )


def _compose(workload_id: str, body: ComposeSpec) -> wire.ComposeSpec:
    if not body.inline_yaml:
        raise SpecNotExpressibleError(
            "spec.compose.git_repo: agents take the Compose file itself and read no repository;"
            " put its text into spec.compose.inline_yaml"
        )
    return wire.ComposeSpec(
        project_name=_project_name(workload_id),
        compose_yaml=base64.b64encode(body.inline_yaml.encode()).decode(),
        env=body.env,
    )


def _project_name(workload_id: str) -> str:
    return _NOT_IN_PROJECT_NAME.sub("-", workload_id.lower()).strip("-") or "workload"


def _machine(workload_id: str, spec: WorkloadSpec, body: VmSpec) -> wire.VMSpec:
    if encoded := spec.metadata.get(VM_SPEC_KEY):
        return _decoded(encoded)
    is_micro = spec.type is WorkloadType.MICROVM
    return wire.VMSpec(
        name=body.name or workload_id,
        vcpus=body.vcpus or -(-spec.resources.cpu_millicores // _MILLICORES_PER_CPU),
        memory_mb=body.memory_mb or spec.resources.memory_mb,
        disks=list(_disks(workload_id, body.disks)),
        networks=[_network(each) for each in body.networks],
        cloud_init=body.cloud_init_text,
        metadata=_labels({**spec.metadata, **body.metadata}),
        cloud_init_config=_cloud_init(body),
        managed_volumes=_volumes(body.managed_volumes),
        os_image=body.os_image,
        disk_gb=body.disk_gb,
        runtime=body.runtime or (_FIRECRACKER if is_micro else ""),
    )


def _decoded(encoded: str) -> wire.VMSpec:
    """The agent-shaped machine spec that a client packed into the metadata."""
    try:
        fields = json.loads(base64.b64decode(encoded, validate=True))
        return json_format.ParseDict(fields, wire.VMSpec(), ignore_unknown_fields=True)
    except (binascii.Error, ValueError, json_format.ParseError, AttributeError):
        # The cause may quote the spec, cloud-init passwords included.
        raise SpecNotExpressibleError(
            f"spec.metadata[{VM_SPEC_KEY}]: not the base64 of a machine spec in JSON with the"
            " agents' field names (vcpus, memory_mb, disks …)"
        ) from None


def _disks(workload_id: str, disks: Iterable[DiskSpec]) -> Iterable[wire.DiskConfig]:
    disks = list(disks)
    taken = {disk.device for disk in disks}
    free = (f"vd{chr(letter)}" for letter in range(ord("a"), ord("z") + 1))
    names = (name for name in free if name not in taken)
    for disk in disks:
        device = disk.device or next(names)
        kind = disk.format or "qcow2"
        suffix = "img" if kind == "raw" else "qcow2"
        yield wire.DiskConfig(
            path=disk.path or f"{_IMAGES}/{workload_id}-{device}.{suffix}",
            device=device,
            format=kind,
            size_gb=disk.size_gb or _DISK_GB,
            type=disk.type or "disk",
            boot=disk.boot,
            backing_file=disk.backing_file,
            storage=disk.storage,
        )


def _network(network: NetworkSpec) -> wire.NetworkConfig:
    return wire.NetworkConfig(
        network=network.network or network.bridge or _DEFAULT_NETWORK,
        mac_address=network.mac_address,
        ip_address=network.static_ip,
        host_dev_name=network.host_dev_name,
        model=network.model,
        bridge=network.bridge,
    )


def _cloud_init(body: VmSpec) -> wire.CloudInitConfig | None:
    given = body.cloud_init
    message = wire.CloudInitConfig(
        user_data=given.user_data,
        meta_data=given.meta_data,
        network_config=given.network_config,
        vendor_data=given.vendor_data,
        username=given.username,
        ssh_public_key=given.ssh_public_key,
        password=given.password,
    )
    return message if message.ByteSize() else None


def _volumes(volumes: Iterable[ManagedVolume]) -> list[wire.ManagedVolumeSpec]:
    return [
        wire.ManagedVolumeSpec(
            name=each.name,
            driver=each.driver,
            size_gb=each.size_gb,
            access_mode=each.access_mode,
            fs_type=each.fs_type,
            mount_path=each.mount_path,
            read_only=each.read_only,
            retain_policy=each.retain_policy,
        )
        for each in volumes
    ]


def _labels(metadata: Mapping[str, str]) -> dict[str, str]:
    """The user's own keys: what Persys keeps for itself in the metadata stays here."""
    return {
        key: value
        for key, value in metadata.items()
        if value and key not in _BOOKKEEPING_KEYS and not key.startswith(_BOOKKEEPING_PREFIX)
    }


def _for_the_agent(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if key.startswith(_AGENT_PREFIX)}

"""From a Workload document to the message that ApplyWorkload takes.

Decided here: which key of the manifest fills which field of the contract. Everything was checked
before; nothing is refused here.
"""

from __future__ import annotations

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.manifest.placement import placement_metadata
from persysctl.manifest.schema import WorkloadDocument
from persysctl.manifest.shapes import ManagedVolume

__all__ = ["to_request"]

DEFAULT_GIT_REF = "main"


def to_request(document: WorkloadDocument, compose_text: str) -> pb.ApplyWorkloadRequest:
    """The message for ``document``; ``compose_text`` is the Compose file's, read by the loader.

    An absent ``desiredState`` stays empty: the scheduler keeps the one that is stored, and runs a
    new workload.
    """
    spec = pb.WorkloadSpec(
        type=document.type,
        resources=_resources(document),
        metadata={**document.labels, **placement_metadata(document.placement)},
    )
    match document.type:
        case "container":
            spec.container.CopyFrom(_container(document))
        case "compose":
            spec.compose.CopyFrom(_compose(document, compose_text))
        case _:
            spec.vm.CopyFrom(_vm(document))
    return pb.ApplyWorkloadRequest(
        workload_id=document.name, spec=spec, desired_state=document.desired_state
    )


def _resources(document: WorkloadDocument) -> pb.ResourceRequirements:
    """What is asked for; a machine asks for its own size where nothing else is written."""
    asked, vm = document.resources, document.vm
    default_disk = sum(disk.size_gb for disk in vm.disks)
    return pb.ResourceRequirements(
        cpu_millicores=vm.vcpus * 1000 if asked.cpu_millicores is None else asked.cpu_millicores,
        memory_mb=vm.memory_mb if asked.memory_mb is None else asked.memory_mb,
        disk_gb=default_disk if asked.disk_gb is None else asked.disk_gb,
    )


def _container(document: WorkloadDocument) -> pb.ContainerSpec:
    return pb.ContainerSpec(
        image=document.image,
        command=document.command,
        env=document.env,
        ports=[
            pb.Port(host_port=port.host, container_port=port.container, protocol=port.protocol)
            for port in document.ports
        ],
        volumes=[
            pb.VolumeMount(
                host_path=volume.host, container_path=volume.container, read_only=volume.read_only
            )
            for volume in document.volumes
        ],
        restart_policy=document.restart_policy,
        privileged=document.privileged,
        managed_volumes=[_managed_volume(volume) for volume in document.managed_volumes],
    )


def _managed_volume(volume: ManagedVolume) -> pb.ManagedVolumeSpec:
    return pb.ManagedVolumeSpec(
        name=volume.name,
        driver=volume.driver,
        size_gb=volume.size_gb,
        access_mode=volume.access_mode,
        fs_type=volume.fs_type,
        mount_path=volume.mount_path,
        read_only=volume.read_only,
        retain_policy=volume.retain_policy,
    )


def _compose(document: WorkloadDocument, text: str) -> pb.ComposeSpec:
    compose = document.compose
    if compose.git_url:
        return pb.ComposeSpec(
            source_type="git",
            git_repo=compose.git_url,
            git_ref=compose.git_ref or DEFAULT_GIT_REF,
            env=document.env,
        )
    return pb.ComposeSpec(source_type="inline", inline_yaml=text, env=document.env)


def _vm(document: WorkloadDocument) -> pb.VMSpec:
    vm = document.vm
    return pb.VMSpec(
        vcpus=vm.vcpus,
        memory_mb=vm.memory_mb,
        os_image=vm.os_image,
        disks=[
            pb.DiskConfig(pool_name=disk.pool, size_gb=disk.size_gb, mount_point=disk.mount_point)
            for disk in vm.disks
        ],
        networks=[
            pb.NetworkConfig(bridge=network.bridge, dhcp=network.dhcp, static_ip=network.static_ip)
            for network in vm.networks
        ],
        cloud_init=pb.CloudInitConfig(**dict(vm.cloud_init)) if vm.cloud_init else None,
        managed_volumes=[_managed_volume(volume) for volume in document.managed_volumes],
    )

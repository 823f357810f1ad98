"""A virtual machine of a request, in the control contract's shape, with its defaults filled in.

The fuller shape that command lines send inside the metadata is read by ``vm_payload``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from persys_core.model.resources import CPU, DISK, MAX_AMOUNT, MEMORY, Resources
from persys_core.model.spec import CloudInit, DiskSpec, NetworkSpec, VmSpec
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.common_in import managed_volumes
from persys_server.grpc.mapping.fields import Fields, quoted
from persys_server.grpc.mapping.limits import MAX_DISKS, MAX_NETWORKS, MAX_TEXT

__all__ = ["DEFAULT_DISK_FORMAT", "DEFAULT_DISK_GB", "check_machine", "vm_resources", "vm_spec"]

DEFAULT_DISK_GB = 20
DEFAULT_DISK_FORMAT = "qcow2"
_MILLICORES = 1000


def vm_spec(fields: Fields, message: pb.VMSpec, asked: Resources) -> VmSpec:
    """The machine that ``message`` describes; cpus and memory left out are taken from ``asked``."""
    spec = VmSpec(
        vcpus=message.vcpus or -(-asked.cpu_millicores // _MILLICORES),
        memory_mb=message.memory_mb or asked.memory_mb,
        disks=_disks(fields, message.disks),
        networks=_networks(fields, message.networks),
        cloud_init=_cloud_init(fields.inside("cloud_init"), message.cloud_init),
        os_image=fields.text("os_image", message.os_image.strip()),
        managed_volumes=managed_volumes(fields, message.managed_volumes),
    )
    check_machine(fields, spec)
    return spec


def check_machine(fields: Fields, spec: VmSpec) -> None:
    """What holds for a machine in either shape."""
    fields.amount("vcpus", spec.vcpus, MAX_AMOUNT[CPU] // _MILLICORES, "virtual cpus", at_least=1)
    fields.amount("memory_mb", spec.memory_mb, MAX_AMOUNT[MEMORY], "MB", at_least=1)
    fields.count("disks", len(spec.disks), MAX_DISKS)
    fields.count("networks", len(spec.networks), MAX_NETWORKS)


def vm_resources(spec: VmSpec, asked: Resources) -> Resources:
    """What placement charges: what was asked for, and what the machine has where nothing was."""
    return Resources.of(
        cpu_millicores=asked.cpu_millicores or spec.vcpus * _MILLICORES,
        memory_mb=asked.memory_mb or spec.memory_mb,
        disk_gb=asked.disk_gb,
    )


def _disks(fields: Fields, messages: Sequence[pb.DiskConfig]) -> tuple[DiskSpec, ...]:
    return tuple(
        _disk(fields.item("disks", index), message) for index, message in enumerate(messages)
    )


def _disk(fields: Fields, message: pb.DiskConfig) -> DiskSpec:
    return DiskSpec(
        size_gb=fields.amount("size_gb", message.size_gb, MAX_AMOUNT[DISK], "GB")
        or DEFAULT_DISK_GB,
        pool_name=fields.text("pool_name", message.pool_name.strip(), at_most=253),
        mount_point=fields.text("mount_point", message.mount_point.strip()),
        format=DEFAULT_DISK_FORMAT,
    )


def _networks(fields: Fields, messages: Sequence[pb.NetworkConfig]) -> tuple[NetworkSpec, ...]:
    return tuple(
        _network(fields.item("networks", index), message) for index, message in enumerate(messages)
    )


def _network(fields: Fields, message: pb.NetworkConfig) -> NetworkSpec:
    static_ip = message.static_ip.strip()
    if static_ip and not _is_address(static_ip):
        fields.add("static_ip", f"{quoted(static_ip)} is not an IP address, such as 10.0.0.5/24")
    if static_ip and message.dhcp:
        fields.add("dhcp", "set together with static_ip; accepted is one of them")
    return NetworkSpec(
        bridge=fields.text("bridge", message.bridge.strip(), at_most=253),
        dhcp=message.dhcp,
        static_ip=static_ip,
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True


def _cloud_init(fields: Fields, message: pb.CloudInitConfig) -> CloudInit:
    names = ("user_data", "meta_data", "network_config", "vendor_data")
    return CloudInit(
        **{
            name: fields.text(name, getattr(message, name), at_most=MAX_TEXT, lines=True)
            for name in names
        }
    )

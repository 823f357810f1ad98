"""The stored shape of a virtual machine's spec: the agent's words in camel case."""

from __future__ import annotations

from attrs import field, frozen

from persys_core.model.spec import CloudInit, DiskSpec, ManagedVolume, NetworkSpec, VmSpec

__all__ = ["StoredMachine", "machine_from", "machine_shape"]


@frozen
class DiskExtras:
    """What a disk of ours has beyond the reference's."""

    pool_name: str = ""
    mount_point: str = ""


@frozen
class StoredDisk:
    """One disk, its size in GB."""

    path: str = ""
    device: str = ""
    format: str = ""
    size_gb: int = 0
    type: str = "disk"
    boot: bool = False
    backing_file: str = ""
    storage: str = ""
    persys: DiskExtras = DiskExtras()


@frozen
class NetworkExtras:
    """What a network interface of ours has beyond the reference's."""

    dhcp: bool = False


@frozen
class StoredNetwork:
    """One network interface."""

    network: str = ""
    mac_address: str = ""
    ip_address: str = ""
    host_dev_name: str = ""
    model: str = ""
    bridge: str = ""
    persys: NetworkExtras = NetworkExtras()


@frozen
class StoredMachine:
    """``vm`` of a spec: memory in MB, disk in GB."""

    name: str = ""
    vcpus: int = 0
    memory_mb: int = 0
    disks: list[StoredDisk] = field(factory=list)
    networks: list[StoredNetwork] = field(factory=list)
    cloud_init: str = ""
    metadata: dict[str, str] = field(factory=dict)
    cloud_init_config: CloudInit = field(factory=CloudInit)
    managed_volumes: list[ManagedVolume] = field(factory=list)
    os_image: str = ""
    disk_gb: int = 0
    runtime: str = ""


def machine_shape(machine: VmSpec) -> StoredMachine:
    """The stored shape of ``machine``."""
    return StoredMachine(
        name=machine.name,
        vcpus=machine.vcpus,
        memory_mb=machine.memory_mb,
        disks=[_disk_shape(disk) for disk in machine.disks],
        networks=[_network_shape(network) for network in machine.networks],
        cloud_init=machine.cloud_init_text,
        metadata=dict(machine.metadata),
        cloud_init_config=machine.cloud_init,
        managed_volumes=list(machine.managed_volumes),
        os_image=machine.os_image,
        disk_gb=machine.disk_gb,
        runtime=machine.runtime,
    )


def machine_from(shape: StoredMachine) -> VmSpec:
    """The machine that ``shape`` means."""
    return VmSpec(
        name=shape.name,
        vcpus=shape.vcpus,
        memory_mb=shape.memory_mb,
        disks=tuple(_disk_from(disk) for disk in shape.disks),
        networks=tuple(_network_from(network) for network in shape.networks),
        cloud_init_text=shape.cloud_init,
        metadata=shape.metadata,
        cloud_init=shape.cloud_init_config,
        managed_volumes=tuple(shape.managed_volumes),
        os_image=shape.os_image,
        disk_gb=shape.disk_gb,
        runtime=shape.runtime,
    )


def _disk_shape(disk: DiskSpec) -> StoredDisk:
    return StoredDisk(
        path=disk.path,
        device=disk.device,
        format=disk.format,
        size_gb=disk.size_gb,
        type=disk.type,
        boot=disk.boot,
        backing_file=disk.backing_file,
        storage=disk.storage,
        persys=DiskExtras(disk.pool_name, disk.mount_point),
    )


def _disk_from(shape: StoredDisk) -> DiskSpec:
    return DiskSpec(
        size_gb=shape.size_gb,
        pool_name=shape.persys.pool_name,
        mount_point=shape.persys.mount_point,
        path=shape.path,
        device=shape.device,
        format=shape.format,
        type=shape.type,
        boot=shape.boot,
        backing_file=shape.backing_file,
        storage=shape.storage,
    )


def _network_shape(network: NetworkSpec) -> StoredNetwork:
    return StoredNetwork(
        network=network.network,
        mac_address=network.mac_address,
        ip_address=network.static_ip,
        host_dev_name=network.host_dev_name,
        model=network.model,
        bridge=network.bridge,
        persys=NetworkExtras(network.dhcp),
    )


def _network_from(shape: StoredNetwork) -> NetworkSpec:
    return NetworkSpec(
        bridge=shape.bridge,
        dhcp=shape.persys.dhcp,
        static_ip=shape.ip_address,
        network=shape.network,
        mac_address=shape.mac_address,
        host_dev_name=shape.host_dev_name,
        model=shape.model,
    )

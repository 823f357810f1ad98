"""From an order to the calls of Firecracker's API that make the machine.

Decided here: which calls are made, in which order (all of them before ``InstanceStart``), what each
disk is made of, and which wishes Firecracker cannot fulfil. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from persys_agent.runtimes.cloud_init.seed import Seed, seed_of
from persys_agent.runtimes.machine.addresses import mac_address
from persys_agent.runtimes.machine.images import allowed_path, find_image
from persys_agent.runtimes.machine.wishes import boot_of, machine_of, memory_mb_of, vcpus_of
from persys_agent.runtimes.microvm.records import MachineFolder
from persys_agent.runtimes.microvm.settings import MicroVmSettings
from persys_agent.runtimes.port import AttachedVolume, FailureCode, Order, RuntimeFailedError
from persys_core.model.spec import DiskSpec, VmSpec

__all__ = ["Drive", "MachinePlan", "plan_machine"]

_MAX_VCPUS = 32
_DEFAULT_GB = 10
_SEED = "cidata"

Request = tuple[str, Mapping[str, object]]


@frozen
class Drive:
    """A disk. ``image``: what it is copied from; ``size_gb``: how large it is made, at least.
    What lies in the machine's folder goes with the machine."""

    id: str
    path: Path
    is_root: bool = False
    is_read_only: bool = False
    image: Path | None = None
    size_gb: int = 0

    def is_missing(self) -> bool:
        """Whether it has to be made."""
        return (self.image is not None or self.size_gb > 0) and not self.path.exists()


@frozen
class MachinePlan:
    """All that is to be made, and what is then asked of Firecracker."""

    folder: MachineFolder
    drives: tuple[Drive, ...]
    seed: Seed | None
    seed_path: Path
    requests: tuple[Request, ...]
    taps: tuple[str, ...]


def plan_machine(order: Order, folder: MachineFolder, settings: MicroVmSettings) -> MachinePlan:
    """Look at the order. Raises ``RuntimeFailedError``."""
    vm, name = machine_of(order), order.workload_id
    vcpus = vcpus_of(order.spec, vm)
    if vcpus > _MAX_VCPUS:
        raise _invalid(f"{vcpus} vCPUs, and a microVM has {_MAX_VCPUS} at most")
    seed, seed_path = seed_of(name, vm), folder.path / "seed.iso"
    drives = tuple(_drives(vm, order.volumes, folder, settings))
    if seed is not None:
        drives += (Drive(_SEED, seed_path, is_read_only=True),)
    machine = {"vcpu_count": vcpus, "mem_size_mib": memory_mb_of(order.spec, vm)}
    nics = _nics(order, vm)
    requests = (
        ("/machine-config", machine),
        ("/boot-source", _boot_source(vm, drives, settings)),
        *((f"/drives/{drive.id}", _drive(drive)) for drive in drives),
        *nics,
    )
    taps = tuple(str(body["host_dev_name"]) for _, body in nics)
    return MachinePlan(folder, drives, seed, seed_path, requests, taps)


def _boot_source(
    vm: VmSpec, drives: Sequence[Drive], settings: MicroVmSettings
) -> Mapping[str, object]:
    boot = boot_of(vm.metadata, settings.images_root, settings.kernel)
    if not boot.kernel:
        raise _invalid("a microVM needs a kernel: name it in persys.agent.kernel")
    if not boot.initrd and not any(drive.is_root for drive in drives):
        raise _invalid("a microVM needs an os_image or an initrd")
    arguments = boot.command_line or settings.command_line
    source: dict[str, object] = {"kernel_image_path": boot.kernel, "boot_args": arguments}
    return source | ({"initrd_path": boot.initrd} if boot.initrd else {})


def _drives(
    vm: VmSpec, volumes: Sequence[AttachedVolume], folder: MachineFolder, settings: MicroVmSettings
) -> Iterator[Drive]:
    if vm.os_image:
        image = find_image(vm.os_image, settings.images_root)
        path = folder.path / "rootfs.raw"
        yield Drive("rootfs", path, is_root=True, image=image, size_gb=vm.disk_gb)
    for index, disk in enumerate(vm.disks):
        yield _spec_drive(index, disk, folder, settings)
    for index, volume in enumerate(volumes):
        yield _volume(index, volume)


def _spec_drive(
    index: int, disk: DiskSpec, folder: MachineFolder, settings: MicroVmSettings
) -> Drive:
    if disk.format not in {"", "raw"}:
        raise _invalid(f"disk format {disk.format!r}: Firecracker reads raw disks only")
    name, size = f"disk{index}", disk.size_gb or _DEFAULT_GB
    image = find_image(disk.backing_file, settings.images_root) if disk.backing_file else None
    if not disk.path:
        path = folder.path / f"{name}.raw"
        return Drive(name, path, disk.boot, image=image, size_gb=size)
    path = allowed_path(disk.path, settings.disk_roots)
    if not path.exists():
        text = f"no disk {path}: leave its path out to have it made"
        raise RuntimeFailedError(FailureCode.IMAGE_NOT_FOUND, text)
    return Drive(name, path, disk.boot, is_read_only=disk.type == "cdrom")


def _volume(index: int, volume: AttachedVolume) -> Drive:
    named = volume.volume
    if volume.device and not volume.device.startswith("/"):
        raise _invalid(f"volume {named.name} is no device of this host, and Firecracker needs one")
    path = Path(volume.device) if volume.device else Path(volume.path) / "disk.raw"
    size = 0 if volume.device else named.size_gb or _DEFAULT_GB
    return Drive(f"volume{index}", path, is_read_only=named.read_only, size_gb=size)


def _drive(drive: Drive) -> Mapping[str, object]:
    return {
        "drive_id": drive.id,
        "path_on_host": str(drive.path),
        "is_root_device": drive.is_root,
        "is_read_only": drive.is_read_only,
    }


def _nics(order: Order, vm: VmSpec) -> tuple[Request, ...]:
    requests: list[Request] = []
    for index, network in enumerate(vm.networks):
        if not network.host_dev_name:
            raise _invalid("a microVM's NIC needs host_dev_name: a TAP device of this host")
        body = {
            "iface_id": f"eth{index}",
            "guest_mac": mac_address(order.workload_id, index, network),
            "host_dev_name": network.host_dev_name,
        }
        requests.append((f"/network-interfaces/eth{index}", body))
    return tuple(requests)


def _invalid(text: str) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.INVALID_SPEC, text)

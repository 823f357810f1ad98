"""What a domain shall be, as values: between the order and libvirt's XML.

Decided here: numbers of CPUs and MB, the NICs, and what boots. Disks are planned in ``disks.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from persys_agent.runtimes.machine.addresses import mac_address
from persys_agent.runtimes.machine.images import allowed_path
from persys_agent.runtimes.port import FailureCode, Order, RuntimeFailedError
from persys_agent.runtimes.vm.host import Host
from persys_agent.runtimes.vm.ownership import Mark
from persys_core.model.ids import WorkloadId
from persys_core.model.spec import NetworkSpec, VmSpec, WorkloadSpec

__all__ = [
    "Boot", "DomainPlan", "PlannedDisk", "PlannedNic", "Source", "boot_of", "domain_uuid",
    "machine_of", "memory_mb_of", "nics_of", "vcpus_of",
]  # fmt: skip

_MILLICORES_PER_CPU = 1000
_UUIDS = uuid.UUID("5f0c1d2e-8f5c-4c7e-9a55-6d1f0f2f7a11")
KERNEL, INITRD, COMMAND_LINE = (
    "persys.agent.kernel",
    "persys.agent.initrd",
    "persys.agent.cmdline",
)


class Source(StrEnum):
    """Where the bytes of a disk are."""

    FILE = "file"
    BLOCK = "block"
    RBD = "rbd"
    NFS = "nfs"


@frozen
class PlannedDisk:
    """One disk. ``location`` is a path, or ``pool/image`` on a network; ``host`` is its server.

    ``makes_gb`` and ``backing`` say how a file is made that is not there; with neither, it has to
    be there. ``is_managed`` is a volume's: never deleted with the domain.
    """

    target: str
    source: Source
    location: str
    form: str = "raw"
    host: str = ""
    port: int = 0
    is_cdrom: bool = False
    is_read_only: bool = False
    boot_order: int = 0
    serial: str = ""
    makes_gb: int = 0
    backing: Path | None = None
    is_managed: bool = False


@frozen
class PlannedNic:
    """One NIC, on a network of libvirt's or on a bridge of the host."""

    mac: str
    network: str = ""
    bridge: str = ""
    model: str = "virtio"
    device: str = ""


@frozen
class Boot:
    """A kernel that is started directly; empty where the machine boots from a disk."""

    kernel: str = ""
    initrd: str = ""
    command_line: str = ""


@frozen
class DomainPlan:
    """A whole domain. ``cpu_millicores`` 0: no limit but the number of ``vcpus``."""

    name: WorkloadId
    uuid: str
    mark: Mark
    host: Host
    vcpus: int
    memory_mb: int
    cpu_millicores: int
    disks: tuple[PlannedDisk, ...]
    nics: tuple[PlannedNic, ...]
    boot: Boot
    console: Path


def machine_of(order: Order) -> VmSpec:
    """The machine that is ordered. Raises ``RuntimeFailedError`` where it is none."""
    if not isinstance(order.spec.body, VmSpec):
        raise RuntimeFailedError(FailureCode.INVALID_SPEC, "the spec is not that of a machine")
    return order.spec.body


def vcpus_of(spec: WorkloadSpec, vm: VmSpec) -> int:
    """As asked for; else enough for the CPU that was placed; one at least."""
    millicores = spec.resources.cpu_millicores
    return max(1, vm.vcpus or -(-millicores // _MILLICORES_PER_CPU))


def memory_mb_of(spec: WorkloadSpec, vm: VmSpec) -> int:
    """As asked for, else what was placed. Raises ``RuntimeFailedError`` where neither says."""
    wanted = vm.memory_mb or spec.resources.memory_mb
    if wanted <= 0:
        raise RuntimeFailedError(FailureCode.INVALID_SPEC, "a machine needs memory_mb")
    return wanted


def nics_of(workload_id: WorkloadId, vm: VmSpec, default_network: str) -> tuple[PlannedNic, ...]:
    """The NICs in the order of the spec. Raises ``RuntimeFailedError``."""
    return tuple(
        _nic(mac_address(workload_id, index, network), network, default_network)
        for index, network in enumerate(vm.networks)
    )


def _nic(mac: str, network: NetworkSpec, default_network: str) -> PlannedNic:
    model = network.model or "virtio"
    if network.bridge:
        return PlannedNic(mac, bridge=network.bridge, model=model, device=network.host_dev_name)
    chosen = network.network or default_network
    return PlannedNic(mac, network=chosen, model=model, device=network.host_dev_name)


def boot_of(metadata: Mapping[str, str], images_root: Path) -> Boot:
    """The kernel that the machine's metadata names. Raises ``RuntimeFailedError``."""
    if not metadata.get(KERNEL):
        return Boot()
    kernel, initrd = (_boot_file(metadata.get(key, ""), images_root) for key in (KERNEL, INITRD))
    return Boot(kernel, initrd, metadata.get(COMMAND_LINE, ""))


def _boot_file(name: str, images_root: Path) -> str:
    if not name:
        return ""
    path = allowed_path(str(images_root / name), [images_root])
    if not path.is_file():
        text = f"no file {name!r} in {images_root}"
        raise RuntimeFailedError(FailureCode.IMAGE_NOT_FOUND, text)
    return str(path)


def domain_uuid(mark: Mark) -> str:
    """The same for every revision of a workload, since guests take it for their identity."""
    owner = mark.owner
    return str(uuid.uuid5(_UUIDS, f"{owner.cluster_id}/{owner.node_id}/{mark.workload_id}"))

"""What a domain shall be, as values: between the order and libvirt's XML.

Decided here: what a plan consists of, the NICs, and the domain's identity. Disks are planned in
``disks.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from attrs import field, frozen

from persys_agent.runtimes.machine.addresses import mac_address
from persys_agent.runtimes.machine.wishes import Boot
from persys_agent.runtimes.vm.host import Host
from persys_agent.runtimes.vm.ownership import Mark
from persys_core.model.ids import WorkloadId
from persys_core.model.secrets import masked
from persys_core.model.spec import NetworkSpec, VmSpec

__all__ = ["DomainPlan", "PlannedDisk", "PlannedNic", "Source", "domain_uuid", "nics_of"]

_UUIDS = uuid.UUID("5f0c1d2e-8f5c-4c7e-9a55-6d1f0f2f7a11")


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
class DomainPlan:
    """A whole domain. ``cpu_millicores`` 0: no limit but the number of ``vcpus``. ``labels`` are
    the user's, for people who look at the domain; secret values are masked in them."""

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
    labels: Mapping[str, str] = field(factory=dict, converter=masked, hash=False)


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


def domain_uuid(mark: Mark) -> str:
    """The same for every revision of a workload, since guests take it for their identity."""
    owner = mark.owner
    return str(uuid.uuid5(_UUIDS, f"{owner.cluster_id}/{owner.node_id}/{mark.workload_id}"))

"""What a spec asks for, and what that is on a given node."""

from __future__ import annotations

import pytest

from persys_core.model.node import StoragePool
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    ContainerSpec,
    DiskSpec,
    ManagedVolume,
    SpecBody,
    VmSpec,
    WorkloadSpec,
)
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.model.workload import Workload
from persys_core.placement.demand import charge_for, demand_of, drivers_of
from persys_core.placement.request import PlacementRequest
from tests.unit.placement.cluster import NOW, make_node


def spec_of(body: SpecBody, **amounts: int) -> WorkloadSpec:
    kind = WorkloadType.VM if isinstance(body, VmSpec) else WorkloadType.CONTAINER
    return WorkloadSpec(kind, Resources.of(**amounts), body)


def asked(demand: dict[str, int]) -> PlacementRequest:
    return PlacementRequest("w1", WorkloadType.VM, Resources(demand))


def test_a_container_asks_for_its_resources() -> None:
    """What is written is what is asked for."""
    spec = spec_of(ContainerSpec("nginx"), cpu_millicores=250, memory_mb=64)
    assert demand_of(spec) == Resources.of(cpu_millicores=250, memory_mb=64)


def test_a_machine_asks_for_at_least_its_hardware() -> None:
    """Virtual CPUs, memory and disks count where resources say less; more is kept."""
    body = VmSpec(2, 2048, disks=(DiskSpec(10), DiskSpec(5)))
    assert demand_of(spec_of(body)) == Resources.of(cpu_millicores=2000, memory_mb=2048, disk_gb=15)
    larger = spec_of(body, cpu_millicores=3000, memory_mb=1024, disk_gb=50)
    assert demand_of(larger) == Resources.of(cpu_millicores=3000, memory_mb=2048, disk_gb=50)


def test_the_short_form_of_a_disk_counts_once() -> None:
    """disk_gb beside listed disks describes the same space."""
    assert demand_of(spec_of(VmSpec(0, 0, disk_gb=20))).disk_gb == 20
    assert demand_of(spec_of(VmSpec(0, 0, (DiskSpec(20),), disk_gb=20))).disk_gb == 20


@pytest.mark.parametrize("path", ["rbd:pool/image", "nfs://server/export/a", "server:/export/a"])
def test_disks_on_the_network_take_no_space_of_the_node(path: str) -> None:
    """Only disks that lie on the node are charged to it."""
    assert not demand_of(spec_of(VmSpec(0, 0, (DiskSpec(20, "p", path=path),))))
    assert demand_of(spec_of(VmSpec(0, 0, (DiskSpec(20, path="/var/a.qcow2"),)))).disk_gb == 20


def test_local_volumes_take_space_and_others_do_not() -> None:
    """A volume of a local driver is on the node, one of a network driver is not."""
    volumes = (
        ManagedVolume("a", size_gb=3),
        ManagedVolume("b", "", size_gb=4),
        ManagedVolume("c", "ceph_rbd", size_gb=100),
    )
    container = spec_of(ContainerSpec("nginx", managed_volumes=volumes))
    assert demand_of(container).disk_gb == 7
    machine = spec_of(VmSpec(0, 0, (DiskSpec(10),), managed_volumes=volumes))
    assert demand_of(machine).disk_gb == 17


def test_driver_names_have_one_spelling() -> None:
    """ceph_rbd and Ceph-RBD are one driver, and local needs no mention."""
    volumes = tuple(ManagedVolume(n, n) for n in ("ceph_rbd", "Ceph-RBD", "local", "", "nfs"))
    spec = spec_of(ContainerSpec("nginx", managed_volumes=volumes))
    assert drivers_of(spec) == {"ceph-rbd", "nfs"}


def test_a_disk_in_a_pool_counts_there_and_in_all() -> None:
    """A disk that names a pool is asked of the pool and of the node's total."""
    demand = demand_of(spec_of(VmSpec(0, 0, (DiskSpec(10, "fast"), DiskSpec(5)))))
    assert demand == Resources({"disk": 15, "disk:fast": 10})


POOLS = (
    StoragePool("root", "local", 100),
    StoragePool("data", "local", 500),
    StoragePool("local", "nvme", 50),
)


@pytest.mark.parametrize(
    ("pools", "wish", "charged"),
    [
        (POOLS, "data", "disk:data"),
        (POOLS, "nvme", "disk:local"),
        (POOLS, "local", "disk:local"),
        (POOLS[:2], "local", "disk:data"),
        (POOLS[:1], "local", "disk:root"),
        (POOLS, "tape", None),
        ((), "local", None),
    ],
    ids=["name", "type", "name first", "largest of type", "old agents", "none", "no pool"],
)
def test_what_a_pool_name_means(
    pools: tuple[StoragePool, ...], wish: str, charged: str | None
) -> None:
    """The pool of that name, else the largest of that type, else the total alone."""
    charge = charge_for(asked({"disk": 10, f"disk:{wish}": 10}), make_node(pools=pools))
    assert charge == Resources({"disk": 10, charged: 10} if charged else {"disk": 10})


def test_two_wishes_may_mean_one_pool() -> None:
    """Both are charged to it."""
    node = make_node(pools=POOLS[:1])
    charge = charge_for(asked({"disk": 15, "disk:root": 10, "disk:local": 5}), node)
    assert charge == Resources({"disk": 15, "disk:root": 15})


def test_a_request_is_made_of_a_stored_workload() -> None:
    """Demand, drivers, wishes and labels come from the spec, the rest from the caller."""
    metadata = {"app": "web", "persys.scheduling.node_selector.disk": "ssd"}
    body = ContainerSpec("nginx", managed_volumes=(ManagedVolume("a", "nfs"),))
    spec = WorkloadSpec(WorkloadType.CONTAINER, Resources.of(memory_mb=64), body, metadata)
    workload = Workload("w1", "uid", spec, "r1", DesiredState.RUNNING, NOW, NOW)
    request = PlacementRequest.of(workload, pinned_to="n1", avoid_node="n2")
    assert request.demand.memory_mb == 64
    assert request.drivers == {"nfs"}
    assert request.constraints.node_selector == {"disk": "ssd"}
    assert request.metadata == metadata
    assert (request.pinned_to, request.avoid_node) == ("n1", "n2")

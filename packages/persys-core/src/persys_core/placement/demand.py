"""How much of a node a workload asks for, and what that is on one particular node.

Decided here: the resource vector of a spec, and which storage pool of a node a wish for a pool
means. ``charge_for`` is the one function that says what is written into a node's ledger; nothing
else may turn a spec into a charge. Whether it fits is decided by the filters.

The rule for pools. A virtual machine's disk may name a pool. That name means, on a given node:

1. the pool of that name, if the node has one;
2. else the node's largest pool of that *type* (``local`` means ``root`` on a node that reports
   the pool ``{name: root, type: local}``), the first by name among equals;
3. else nothing in particular: the disk counts against the node's total disk space alone.

Every disk counts against the total (``disk``), a disk in a known pool against that pool as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias

from persys_core.model.node import Node, StoragePool
from persys_core.model.resources import CPU, DISK, MEMORY, Resources, pool_dimension
from persys_core.model.spec import DiskSpec, ManagedVolume, SpecBody, VmSpec, WorkloadSpec

__all__ = [
    "LOCAL_DRIVER",
    "PoolMap",
    "charge_for",
    "demand_of",
    "driver_name",
    "drivers_of",
    "in_checking_order",
    "pool_charges",
    "pool_map_of",
    "pool_wishes",
]

LOCAL_DRIVER = "local"
_MILLICORES_PER_CPU = 1000
_POOL_PREFIX = pool_dimension("")
_NETWORK_DISK = re.compile(r"rbd:|nfs://|[^/:]+:/")

PoolMap: TypeAlias = tuple[tuple[str, str], ...]
"""What pool names mean on a node: sorted pairs (a pool's name or type, the pool's name)."""


class _Asks(Protocol):
    @property
    def demand(self) -> Resources: ...
    @property
    def pools(self) -> Mapping[str, int]: ...


def demand_of(spec: WorkloadSpec) -> Resources:
    """What ``spec`` asks of any node: millicores, MB, GB, and GB per pool that it names.

    A machine asks for at least its virtual CPUs and its memory, whatever ``resources`` says, and
    everything for at least the disks and local volumes that it creates. The dimension of a named
    pool bears the name as the user wrote it; ``charge_for`` finds the node's own pool.
    """
    volumes = sum(volume.size_gb for volume in _local_volumes(spec.managed_volumes))
    return spec.resources.larger(_body_demand(spec.body, volumes))


def _local_volumes(volumes: Iterable[ManagedVolume]) -> Iterator[ManagedVolume]:
    return (volume for volume in volumes if driver_name(volume.driver) == LOCAL_DRIVER)


def _body_demand(body: SpecBody, volumes_gb: int) -> Resources:
    if not isinstance(body, VmSpec):
        return Resources.of(disk_gb=volumes_gb)
    disks = [disk for disk in body.disks if not _NETWORK_DISK.match(disk.path)]
    machine = Resources.of(
        cpu_millicores=body.vcpus * _MILLICORES_PER_CPU,
        memory_mb=body.memory_mb,
        # disk_gb is a short form for one root disk: with disks listed, it says the same again.
        disk_gb=max(body.disk_gb, sum(disk.size_gb for disk in disks)) + volumes_gb,
    )
    return Resources.total((machine, *map(_pool_share, disks)))


def _pool_share(disk: DiskSpec) -> Resources:
    if not disk.pool_name:
        return Resources()
    return Resources({pool_dimension(disk.pool_name): disk.size_gb})


def driver_name(text: str) -> str:
    """The one spelling of a storage driver's name; an empty one is ``local``."""
    name = text.strip().lower().replace("_", "-")
    return name or LOCAL_DRIVER


def drivers_of(spec: WorkloadSpec) -> frozenset[str]:
    """The storage drivers that a node needs for ``spec``, beyond ``local``, which all have."""
    names = {driver_name(volume.driver) for volume in spec.managed_volumes}
    return frozenset(names - {LOCAL_DRIVER})


def pool_wishes(demand: Resources) -> dict[str, int]:
    """The GB that ``demand`` wants per pool, by the name the user wrote."""
    return {
        dimension.removeprefix(_POOL_PREFIX): amount
        for dimension, amount in demand
        if dimension.startswith(_POOL_PREFIX)
    }


def pool_map_of(pools: Iterable[StoragePool]) -> PoolMap:
    """What every pool name or type that these pools answer to means (rules 1 and 2 above)."""
    meaning: dict[str, str] = {}
    for pool in sorted(pools, key=lambda pool: (-pool.total_gb, pool.name)):
        meaning.setdefault(pool.type, pool.name)
    meaning.update({pool.name: pool.name for pool in pools})
    return tuple(sorted(meaning.items()))


def pool_charges(wishes: Mapping[str, int], pool_map: PoolMap) -> dict[str, int]:
    """The GB per pool dimension that ``wishes`` come to where pools mean ``pool_map``.

    Several wishes may mean one pool, which is then charged with their sum.
    """
    meaning = dict(pool_map)
    charges: dict[str, int] = {}
    for wish, amount in wishes.items():
        if wish in meaning:
            dimension = pool_dimension(meaning[wish])
            charges[dimension] = charges.get(dimension, 0) + amount
    return charges


def charge_for(request: _Asks, node: Node) -> Resources:
    """What placing ``request`` (a ``PlacementRequest``) on ``node`` adds to the node's ledger."""
    if not request.pools:
        return request.demand
    pooled = pool_charges(request.pools, pool_map_of(node.storage_pools))
    own = (item for item in request.demand if not item[0].startswith(_POOL_PREFIX))
    return Resources(dict(own) | pooled)


def in_checking_order(demand: Resources) -> tuple[tuple[str, int], ...]:
    """The asked dimensions in the order in which they are checked: cpu, memory, disk, others.

    Pools are not among them, since what they mean differs from node to node.
    """
    first = (CPU, MEMORY, DISK)
    others = [name for name, _ in demand if name not in first and not name.startswith(_POOL_PREFIX)]
    return tuple((name, demand.get(name)) for name in (*first, *others) if demand.get(name) > 0)

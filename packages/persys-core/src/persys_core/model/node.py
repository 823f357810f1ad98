"""A machine of the cluster: what it can do, and what its operator intends with it.

Its liveness is not part of the record (a steady heartbeat writes nothing); see ``nodes.liveness``
and the Liveness port. Capacity is subtracted from in one place: ``Node.allocatable``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from attrs import field, frozen

from persys_core.model.ids import NodeId
from persys_core.model.mappings import text_map
from persys_core.model.resources import DISK, Resources, pool_dimension
from persys_core.model.states import TaintEffect, WorkloadType

__all__ = ["DrainOrder", "Fence", "Node", "OperatorIntent", "StoragePool", "Taint", "capacity_of"]


@frozen
class StoragePool:
    """Disk space of a node under a name; ``total_gb`` in GB."""

    name: str
    type: str = "local"
    total_gb: int = 0


@frozen
class Taint:
    """A mark that keeps workloads away which do not tolerate it."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE

    def __str__(self) -> str:
        """As people write it: ``key=value:Effect``, without a value ``key:Effect``."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


@frozen
class DrainOrder:
    """An operator's wish that everything leaves a node.

    ``deadline_at``: what has not left by then stays, or with ``force`` is stopped there. ``None``
    waits for as long as it takes. ``workloads``: how many were to leave when the drain began.
    """

    started_at: datetime
    deadline_at: datetime | None = None
    force: bool = False
    workloads: int = 0


@frozen
class OperatorIntent:
    """What an operator wants of a node; only operators change it, never a heartbeat.

    ``labels`` win over the labels that the agent sent. ``draining`` implies unschedulable.
    """

    cordoned: bool = False
    draining: bool = False
    reason: str = ""
    changed_by: str = ""
    changed_at: datetime | None = None
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(factory=dict, converter=text_map)
    drain: DrainOrder | None = None


@frozen
class Fence:
    """A word that a silent node is cut off: nothing exclusive on it can write any more. It is an
    operator's, or follows from the promise of the node's agent to stop such work by itself.

    It is over as soon as the node is heard again, since that disproves it.
    """

    at: datetime
    reason: str
    by: str = ""


@frozen
class Node:
    """The durable record of a registered node.

    ``capacity`` is what the machine has, ``reserved`` what its host keeps for itself.
    ``stop_after_seconds``: how long after its lease the agent itself stops work that one node at a
    time may do; zero for one that does not. ``boot_id`` names the life of the agent's process that
    registered last; empty where it did not say.
    """

    id: NodeId
    capacity: Resources
    endpoint: str
    workload_types: frozenset[WorkloadType]
    registered_at: datetime
    reserved: Resources = Resources()
    storage_drivers: frozenset[str] = frozenset({"local"})
    storage_pools: tuple[StoragePool, ...] = ()
    agent_labels: Mapping[str, str] = field(factory=dict, converter=text_map)
    agent_version: str = ""
    cluster_id: str = ""
    stop_after_seconds: int = 0
    boot_id: str = ""
    intent: OperatorIntent = OperatorIntent()
    listed_under: int = 0
    """Creation revision of the cluster marker under which the node was first listed in full;
    nothing is placed on a node before (decisions §4)."""
    fence: Fence | None = None

    @property
    def allocatable(self) -> Resources:
        """What workloads may be charged with: capacity less the host's reserve (P01)."""
        return self.capacity - self.reserved

    @property
    def labels(self) -> dict[str, str]:
        """The labels that selectors see: the agent's, overlaid by the operator's."""
        return {**self.agent_labels, **self.intent.labels}

    @property
    def is_schedulable(self) -> bool:
        """Whether the operator lets new work come here."""
        return not (self.intent.cordoned or self.intent.draining)


def capacity_of(cpu_millicores: int, memory_mb: int, pools: tuple[StoragePool, ...]) -> Resources:
    """The capacity vector of a machine: cpu, memory, disk in all, and disk per pool.

    A node that reports no pool has unknown disk space, which counts as none.
    """
    parts = [Resources.of(cpu_millicores=cpu_millicores, memory_mb=memory_mb)]
    for pool in pools:
        parts.append(Resources({DISK: pool.total_gb, pool_dimension(pool.name): pool.total_gb}))
    return Resources.total(parts)

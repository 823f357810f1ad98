"""Fleets, nodes and requests from plain numbers, for tools that embed placement alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from persys_core.model.constraints import parse_constraints
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node, StoragePool, capacity_of
from persys_core.model.resources import Resources
from persys_core.model.states import WorkloadType
from persys_core.placement.fleet import Fleet
from persys_core.placement.request import PlacementRequest

__all__ = ["simple_fleet", "simple_node", "simple_request"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def simple_fleet(*nodes: Node) -> Fleet:
    """A fleet of ``nodes`` that are all alive and known in full."""
    fleet = Fleet()
    for node in nodes:
        fleet.set_node(node)
        fleet.set_alive(node.id, True)
        fleet.set_listed(node.id, True)
    return fleet


def simple_node(
    node_id: NodeId,
    *,
    cpu_millicores: int,
    memory_mb: int,
    disk_gb: int = 0,
    labels: Mapping[str, str] | None = None,
) -> Node:
    """A node that can run every type of workload; its id stands in for an endpoint."""
    pools = (StoragePool("root", total_gb=disk_gb),) if disk_gb else ()
    return Node(
        id=node_id,
        capacity=capacity_of(cpu_millicores, memory_mb, pools),
        endpoint=node_id,
        workload_types=frozenset(WorkloadType),
        registered_at=_LONG_AGO,
        storage_pools=pools,
        agent_labels=labels or {},
    )


def simple_request(
    workload_id: WorkloadId,
    *,
    cpu_millicores: int = 0,
    memory_mb: int = 0,
    disk_gb: int = 0,
    metadata: Mapping[str, str] | None = None,
) -> PlacementRequest:
    """A request of a container. ``metadata`` may hold ``persys.scheduling.*`` wishes.

    Raises ``InvalidInputError`` that names every malformed wish.
    """
    wishes = metadata or {}
    demand = Resources.of(cpu_millicores=cpu_millicores, memory_mb=memory_mb, disk_gb=disk_gb)
    return PlacementRequest(
        workload_id,
        WorkloadType.CONTAINER,
        demand,
        constraints=parse_constraints(wishes),
        metadata=wishes,
    )

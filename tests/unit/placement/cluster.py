"""A small cluster to place on, made in one line, with the instant it is looked at."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from persys_core.model.constraints import parse_constraints
from persys_core.model.node import Node, OperatorIntent, StoragePool, Taint, capacity_of
from persys_core.model.resources import Resources
from persys_core.model.states import TaintEffect, WorkloadType
from persys_core.model.usage import NodeUsage
from persys_core.model.workload import Allocation
from persys_core.placement.fleet import Fleet
from persys_core.placement.placer import Placed, Placer, Unschedulable
from persys_core.placement.request import PlacementRequest
from persys_core.placement.reservations import Reservations

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ROOT_POOL = StoragePool("root", "local", 100)


def taint(text: str) -> Taint:
    """``key[=value][:Effect]``, NoSchedule where no effect is named."""
    pair, _, effect = text.partition(":")
    key, _, value = pair.partition("=")
    return Taint(key, value, TaintEffect(effect or "NoSchedule"))


def make_node(
    node_id: str = "n1",
    cpu: int = 4000,
    memory: int = 8000,
    labels: Mapping[str, str] | None = None,
    taints: tuple[str, ...] = (),
    pools: tuple[StoragePool, ...] = (ROOT_POOL,),
) -> Node:
    """A node of 4 cores, 8000 MB and one pool of 100 GB that runs containers."""
    return Node(
        node_id,
        capacity_of(cpu, memory, pools),
        "10.0.0.1:50051",
        frozenset({WorkloadType.CONTAINER}),
        NOW,
        storage_pools=pools,
        agent_labels=labels or {},
        intent=OperatorIntent(taints=tuple(map(taint, taints))),
    )


def want(
    workload_id: str = "w1", cpu: int = 0, memory: int = 0, disk: int = 0, **wishes: str
) -> PlacementRequest:
    """A container's request; ``wishes`` are ``persys.scheduling`` keys, ``__`` for the dot."""
    metadata = {
        f"persys.scheduling.{key.replace('__', '.')}": value for key, value in wishes.items()
    }
    return PlacementRequest(
        workload_id,
        WorkloadType.CONTAINER,
        Resources.of(cpu_millicores=cpu, memory_mb=memory, disk_gb=disk),
        constraints=parse_constraints(metadata),
    )


class Cluster:
    """A fleet of alive and listed nodes, its reservations and a placer."""

    def __init__(self, *nodes: Node) -> None:
        self.fleet = Fleet()
        self.reservations = Reservations()
        self.placer = Placer(self.fleet, self.reservations)
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Register a node that is alive and listed."""
        self.fleet.set_node(node)
        self.fleet.set_alive(node.id, True)
        self.fleet.set_listed(node.id, True)

    def charge(self, node_id: str, cpu: int = 0, memory: int = 0, count: int = 1) -> None:
        """Let the ledger of a node say this."""
        charged = Resources.of(cpu_millicores=cpu, memory_mb=memory)
        self.fleet.set_allocation(Allocation(node_id, charged, count))

    def report(self, node_id: str, cpu: int = 0, memory: int = 0, at: datetime = NOW) -> None:
        """Let a node report this use."""
        used = Resources.of(cpu_millicores=cpu, memory_mb=memory)
        self.fleet.set_usage(NodeUsage(node_id, used, at))

    def chosen(
        self, request: PlacementRequest, now: datetime = NOW, excluding: Collection[str] = ()
    ) -> str:
        """The node that the request goes to; the summary where there is none."""
        match self.placer.place(request, now, excluding):
            case Placed(node_id=node_id):
                return node_id
            case Unschedulable() as refused:
                return refused.summary

    def placed(self, request: PlacementRequest, now: datetime = NOW) -> Placed:
        """The decision for a request that fits."""
        decision = self.placer.place(request, now)
        assert isinstance(decision, Placed), decision
        return decision

    def codes(self, request: PlacementRequest, now: datetime = NOW) -> dict[str, int]:
        """How many nodes say no, by reason code."""
        reasons = self.placer.explain(request, now).reasons
        return {reason.code.value: reason.nodes for reason in reasons}

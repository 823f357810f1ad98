"""A placer that is slow and obviously right: dictionaries, loops and the rules as written.

It shares only the model's values and ``PlacementRequest`` with the engine. Keep it that way: it
is what the engine is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b

from persys_core.model.constraints import SchedulingStrategy
from persys_core.model.node import Node, StoragePool
from persys_core.model.resources import Resources
from persys_core.model.states import TaintEffect, WorkloadType
from persys_core.model.usage import NodeUsage
from persys_core.model.workload import Allocation
from persys_core.placement.request import PlacementRequest

LIFETIME = timedelta(seconds=90)


def meant_pool(name: str, pools: tuple[StoragePool, ...]) -> str:
    """The pool of that name, else the largest of that type, else none."""
    if any(pool.name == name for pool in pools):
        return name
    of_type = [pool for pool in pools if pool.type == name]
    if not of_type:
        return ""
    largest = max(pool.total_gb for pool in of_type)
    return min(pool.name for pool in of_type if pool.total_gb == largest)


def charge_of(request: PlacementRequest, node: Node) -> dict[str, int]:
    """What the request is charged with on the node, by dimension."""
    charge: dict[str, int] = {}
    for dimension, amount in request.demand:
        name = dimension
        if dimension.startswith("disk:"):
            pool = meant_pool(dimension.removeprefix("disk:"), node.storage_pools)
            name = f"disk:{pool}" if pool else ""
        if name:
            charge[name] = charge.get(name, 0) + amount
    return charge


def in_order(dimensions: Collection[str]) -> list[str]:
    """cpu, memory, disk, then the others, then pools."""
    first = ["cpu", "memory", "disk"]
    rank = {name: (number, "") for number, name in enumerate(first)}
    return sorted(
        dimensions, key=lambda name: rank.get(name, (4 if name.startswith("disk:") else 3, name))
    )


def blocks(node: Node, request: PlacementRequest, effects: Collection[TaintEffect]) -> bool:
    """Whether the node has a taint of these effects that the request does not tolerate."""
    for taint in node.intent.taints:
        tolerated = any(
            one.key == taint.key
            and (one.value is None or one.value == taint.value)
            and (one.effect is None or one.effect == taint.effect)
            for one in request.constraints.tolerations
        )
        if taint.effect in effects and not tolerated:
            return True
    return False


def drivers_of(node: Node) -> set[str]:
    """local, the advertised ones, and those of labels that are true."""
    drivers = {"local", *node.storage_drivers}
    for key, value in node.labels.items():
        if key.startswith("storage.") and value == "true":
            drivers.add(key.removeprefix("storage."))
    return {name.replace("_", "-") for name in drivers}


def digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


class ReferencePlacer:
    """Facts by id; every question is answered by looking at every node."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.alive: set[str] = set()
        self.listed: set[str] = set()
        self.ledger: dict[str, Allocation] = {}
        self.usage: dict[str, NodeUsage] = {}
        self.tombstones: set[tuple[str, str]] = set()
        self.labels: dict[str, tuple[str, Mapping[str, str]]] = {}
        self.held: dict[tuple[str, str], tuple[Resources, datetime]] = {}

    def remove_node(self, node_id: str) -> None:
        self.nodes.pop(node_id, None)
        self.alive.discard(node_id)
        self.listed.discard(node_id)
        self.usage.pop(node_id, None)

    def set_usage(self, usage: NodeUsage) -> None:
        known = self.usage.get(usage.node_id)
        if known is None or known.reported_at <= usage.reported_at:
            self.usage[usage.node_id] = usage

    def first_reason(
        self, request: PlacementRequest, node: Node, excluding: Collection[str]
    ) -> str:
        """The first failing check; empty where the node is feasible."""
        wishes, blocking = request.constraints, (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
        types = set(node.workload_types)
        if WorkloadType.VM in types:
            types.add(WorkloadType.MICROVM)
        checks = {
            "node_not_ready": node.id not in self.alive,
            "not_listed": node.id not in self.listed,
            "cordoned": node.intent.cordoned,
            "draining": node.intent.draining,
            "taint": blocks(node, request, blocking),
            "selector": any(node.labels.get(k) != v for k, v in wishes.node_selector.items()),
            "workload_type": request.type not in types,
            "storage_driver": not request.drivers <= drivers_of(node),
            "excluded": node.id in wishes.exclude_nodes or node.id in excluding,
            "anti_affinity": self.has_rival(request, node),
            "local_data": request.pinned_to not in ("", node.id),
            "tombstone": (node.id, request.workload_id) in self.tombstones,
        }
        for code, fails in checks.items():
            if fails:
                return code
        return self.short_of(request, node)

    def has_rival(self, request: PlacementRequest, node: Node) -> bool:
        return any(
            other != request.workload_id and where == node.id and labels.get(key) == value
            for other, (where, labels) in self.labels.items()
            for key, value in request.constraints.anti_affinity.items()
        )

    def short_of(self, request: PlacementRequest, node: Node) -> str:
        """The first dimension that is asked for beyond what is free."""
        charge, free = charge_of(request, node), self.free(request, node)
        for dimension in in_order(charge):
            if charge[dimension] > max(0, free.get(dimension)):
                known = dimension in ("cpu", "memory", "disk")
                return dimension if known else f"resource {dimension}"
        return ""

    def free(self, request: PlacementRequest, node: Node) -> Resources:
        charged = self.ledger.get(node.id, Allocation(node.id)).charged
        if request.credit is not None and request.credit[0] == node.id:
            charged = charged - request.credit[1]
        return node.capacity - node.reserved - charged

    def count(self, request: PlacementRequest, node: Node) -> int:
        count = self.ledger.get(node.id, Allocation(node.id)).workload_count
        credited = request.credit is not None and request.credit[0] == node.id
        return max(0, count - 1) if credited else count

    def shown_count(self, request: PlacementRequest, node: Node) -> int:
        """Of the node, or of all nodes of its domain."""
        key = request.constraints.spread_by
        if not key:
            return self.count(request, node)
        return sum(
            self.count(request, other)
            for other in self.nodes.values()
            if other.labels.get(key, "") == node.labels.get(key, "")
        )

    def headroom(
        self, request: PlacementRequest, node: Node, dimension: str, now: datetime
    ) -> float:
        total = (node.capacity - node.reserved).get(dimension)
        if total <= 0:
            return 0.0
        free = self.free(request, node).get(dimension)
        usage = self.usage.get(node.id)
        if usage is not None and now - usage.reported_at < LIFETIME:
            sixteenth = node.capacity.get(dimension) / 16
            steps = math.floor(usage.used.get(dimension) / sixteenth)
            reported = node.capacity.get(dimension) - math.floor(steps * sixteenth)
            in_flight = sum(
                held.get(dimension)
                for (where, _), (held, since) in self.held.items()
                if where == node.id and now - since < LIFETIME
            )
            free = min(free, reported - in_flight)
        return max(0, free) / total

    def scores(
        self, request: PlacementRequest, now: datetime, excluding: Collection[str]
    ) -> dict[str, float]:
        """The score of every feasible node."""
        feasible = [
            node for node in self.nodes.values() if not self.first_reason(request, node, excluding)
        ]
        counts = {node.id: self.shown_count(request, node) for node in feasible}
        busiest = max(counts.values(), default=0)
        scores: dict[str, float] = {}
        for node in feasible:
            cpu = self.headroom(request, node, "cpu", now)
            memory = self.headroom(request, node, "memory", now)
            if request.constraints.strategy is SchedulingStrategy.BINPACK:
                score = 0.5 * (1 - cpu) + 0.5 * (1 - memory)
            else:
                spread = 1 - counts[node.id] / busiest if busiest else 1.0
                score = 0.4 * cpu + 0.4 * memory + 0.2 * spread
            if blocks(node, request, (TaintEffect.PREFER_NO_SCHEDULE,)):
                score -= 1.0
            scores[node.id] = score - 1.0 if node.id == request.avoid_node else score
        return scores

    def choice(self, request: PlacementRequest, now: datetime, excluding: Collection[str]) -> str:
        """The node to take; empty where none is feasible."""
        scores = self.scores(request, now, excluding)
        if not scores:
            return ""
        best = max(scores.values())
        tied = [node_id for node_id, score in scores.items() if score >= best - 1e-9]
        own = digest(request.workload_id)
        return max(tied, key=lambda node_id: (digest(node_id) ^ own) * 0x9E3779B97F4A7C15 % 2**64)

    def tally(self, request: PlacementRequest, excluding: Collection[str]) -> dict[str, int]:
        """How many nodes fail first on what."""
        tally: dict[str, int] = {}
        for node in self.nodes.values():
            reason = self.first_reason(request, node, excluding)
            if reason:
                tally[reason] = tally.get(reason, 0) + 1
        return tally

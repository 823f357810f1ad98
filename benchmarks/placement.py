"""Placement: decisions per second, and full explanations of what cannot be placed.

`python -m benchmarks.placement [--nodes 5000]` prints lines of `name value unit size…`, among
them ratios within this run: twice the nodes, and a plain numpy pass over the same fleet.

A decision of P1 is followed by its commit, as far as it happens in this process: the node is
charged, a reservation held, and the oldest workload's share given back, so that every decision
sees another fleet and the fleet stays as full as it is. What is timed is all of that, on one
core; making the requests is not. Each figure is the best of some rounds.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from persys_core.model.constraints import PlacementConstraints, Toleration
from persys_core.model.node import Node, OperatorIntent, StoragePool, Taint, capacity_of
from persys_core.model.resources import CPU, DISK, MEMORY, Resources
from persys_core.model.states import TaintEffect, WorkloadType
from persys_core.model.usage import NodeUsage
from persys_core.placement.demand import charge_for
from persys_core.placement.fleet import Fleet
from persys_core.placement.placer import Placed, Placer
from persys_core.placement.prepared import ClassCache
from persys_core.placement.request import PlacementRequest
from persys_core.placement.reservations import Reservations

__all__ = ["Bench", "main"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLASSES = 75
LIVE_WORKLOADS_PER_NODE = 6
SECONDS_PER_ROUND = 0.5
ROUNDS = 6
PER_ROUND = 2000

TYPES = (
    {WorkloadType.CONTAINER, WorkloadType.COMPOSE},
    {WorkloadType.CONTAINER, WorkloadType.COMPOSE, WorkloadType.VM},
    {WorkloadType.VM, WorkloadType.MICROVM},
    {WorkloadType.CONTAINER},
)
TAINTS = (
    Taint("gpu", "true"),
    Taint("team", "data", TaintEffect.NO_EXECUTE),
    Taint("old", "", TaintEffect.PREFER_NO_SCHEDULE),
)


def random_node(rng: random.Random, number: int) -> Node:
    """A node of one of many shapes; a few of them closed."""
    cores = rng.choice((4, 8, 16, 32, 64, 96))
    pools = (StoragePool("root", "local", rng.choice((100, 500, 2000))),)
    return Node(
        id=f"node-{number:05d}",
        capacity=capacity_of(cores * 1000, cores * rng.choice((2048, 4096, 8192)), pools),
        endpoint=f"10.0.0.1:{number}",
        workload_types=frozenset(rng.choice(TYPES)),
        registered_at=NOW,
        reserved=Resources.of(cpu_millicores=500, memory_mb=1024),
        storage_drivers=frozenset({"local", *rng.sample(("nfs", "ceph-rbd"), rng.randrange(3))}),
        storage_pools=pools,
        agent_labels={
            "zone": rng.choice("abc"),
            "disk": rng.choice(("ssd", "hdd")),
            "hostname": f"node-{number:05d}",
        },
        intent=OperatorIntent(
            cordoned=rng.random() < 0.02,
            draining=rng.random() < 0.01,
            taints=tuple(taint for taint in TAINTS if rng.random() < 0.06),
        ),
    )


def random_class(rng: random.Random, number: int) -> PlacementRequest:
    """One shape of workload; a third wants a zone, a third an SSD, some tolerate taints."""
    kind = rng.choice((WorkloadType.CONTAINER,) * 4 + (WorkloadType.COMPOSE, WorkloadType.VM))
    selector = {}
    if rng.random() < 1 / 3:
        selector["zone"] = rng.choice("abc")
    if rng.random() < 1 / 3:
        selector["disk"] = "ssd"
    return PlacementRequest(
        f"class-{number}",
        kind,
        Resources.of(
            cpu_millicores=rng.choice((100, 250, 500, 1000, 2000, 4000)),
            memory_mb=rng.choice((128, 256, 512, 1024, 4096, 8192)),
            disk_gb=rng.choice((1, 5, 10, 40)),
        ),
        frozenset({"nfs"} if rng.random() < 0.2 else ()),
        PlacementConstraints(
            node_selector=selector,
            tolerations=(Toleration("gpu"),) if rng.random() < 0.2 else (),
        ),
    )


def impossible_class(rng: random.Random, number: int) -> PlacementRequest:
    """A shape that no node has room for, after every other filter had its say."""
    possible = random_class(rng, number)
    return evolve(possible, demand=Resources.of(cpu_millicores=10**6, memory_mb=10**9))


class Bench:
    """A fleet under load. Placed workloads live in order; the oldest goes when one comes."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.fleet = Fleet()
        self.reservations = Reservations()
        self.placer = Placer(self.fleet, self.reservations)
        self._live: deque[tuple[str, str, Resources]] = deque()
        self._numbers = count()
        for number in range(nodes):
            self._add_node(random_node(self.rng, number))
        self.classes = [random_class(self.rng, number) for number in range(CLASSES)]
        for request in self.requests(nodes * LIVE_WORKLOADS_PER_NODE):
            self.decide_and_commit(request)

    def _add_node(self, node: Node) -> None:
        self.fleet.set_node(node)
        self.fleet.set_alive(node.id, self.rng.random() > 0.01)
        self.fleet.set_listed(node.id, True)
        if self.rng.random() < 0.5:
            used = Resources.of(
                cpu_millicores=self.rng.randrange(node.capacity.cpu_millicores),
                memory_mb=self.rng.randrange(node.capacity.memory_mb),
            )
            self.fleet.set_usage(NodeUsage(node.id, used, NOW))

    def requests(self, number: int) -> list[PlacementRequest]:
        """Requests of new workloads, the classes in random order."""
        return [
            evolve(self.rng.choice(self.classes), workload_id=f"workload-{next(self._numbers)}")
            for _ in range(number)
        ]

    def decide_and_commit(self, request: PlacementRequest) -> bool:
        """One decision with everything that follows from it in this process."""
        decision = self.placer.place(request, NOW)
        if not isinstance(decision, Placed):
            return False
        node = self.fleet.node(decision.node_id)
        assert node is not None
        charge = charge_for(request, node)
        self.fleet.set_allocation(self.fleet.allocation(node.id).charge(charge))
        self.reservations.hold(node.id, request.workload_id, charge, NOW)
        self._live.append((request.workload_id, node.id, charge))
        return True

    def replace(self, request: PlacementRequest) -> None:
        """Place one, and give back what the one that lives longest is charged with."""
        if not self.decide_and_commit(request):
            return
        workload_id, node_id, charge = self._live.popleft()
        self.reservations.release(node_id, workload_id)
        self.fleet.set_allocation(self.fleet.allocation(node_id).release(charge))

    def mean_feasible(self) -> float:
        """How many nodes a request of these classes can go to, on average."""
        told = [self.placer.explain(request, NOW, 0, 1) for request in self.classes]
        return sum(one.nodes_feasible for one in told) / len(told)


class PlainPass:
    """What one would write first: one expression per filter and score, over all nodes.

    It is given the cached result of all filters but the capacity ones, and breaks no ties.
    """

    def __init__(self, bench: Bench) -> None:
        table = bench.fleet.table
        nodes = [table.numbers(row).node for row in range(len(table))]
        self._table = table
        self._cpu_total = np.array([node.allocatable.cpu_millicores for node in nodes])
        self._memory_total = np.array([node.allocatable.memory_mb for node in nodes])
        self._cpu_reported = self._cpu_total * table.cpu_headroom.values
        self._memory_reported = self._memory_total * table.memory_headroom.values
        cache = ClassCache(bench.fleet)
        self._allowed: dict[str, NDArray[np.bool_]] = {
            request.class_key: cache.get(request).allowed for request in bench.classes
        }

    def choose(self, request: PlacementRequest) -> int:
        """The row of the best node."""
        cpu, memory, disk = (self._table.free[name].values for name in (CPU, MEMORY, DISK))
        feasible = (
            self._allowed[request.class_key]
            & (cpu >= request.demand.cpu_millicores)
            & (memory >= request.demand.memory_mb)
            & (disk >= request.demand.disk_gb)
        )
        counts = self._table.counts.values
        busiest = max(1.0, counts[feasible].max(initial=0.0))
        scores = (
            0.4 * np.maximum(np.minimum(cpu, self._cpu_reported), 0) / self._cpu_total
            + 0.4 * np.maximum(np.minimum(memory, self._memory_reported), 0) / self._memory_total
            + 0.2 * (1 - counts / busiest)
        )
        return int(np.argmax(np.where(feasible, scores, -np.inf)))


def rate(call: Callable[[PlacementRequest], object], requests: list[PlacementRequest]) -> float:
    """Calls per second, the best round; requests are used in turn."""

    def one_round() -> float:
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < SECONDS_PER_ROUND:
            for request in requests:
                call(request)
            done += len(requests)
        return done / (time.perf_counter() - began)

    gc.collect()
    return max(one_round() for _ in range(ROUNDS))


def cold_rate(bench: Bench) -> float:
    """Decisions per second where every one is the first of its class."""
    requests = [random_class(bench.rng, number) for number in range(50)]

    def decide(request: PlacementRequest) -> None:
        Placer(bench.fleet, bench.reservations).place(request, NOW)

    return rate(decide, requests)


def report(name: str, value: float, unit: str, **sizes: object) -> None:
    """Print one line."""
    told = " ".join(f"{key}={size}" for key, size in sizes.items())
    print(f"{name} {value:.{0 if value > 100 else 2}f} {unit} {told}".rstrip(), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    nodes: int = parser.parse_args().nodes
    bench, double = Bench(nodes), Bench(2 * nodes)
    sizes = {"nodes": nodes, "classes": CLASSES}
    requests = bench.requests(PER_ROUND)
    placed = rate(bench.replace, requests)
    report(
        "P1_placement", placed, "decisions/s", **sizes, feasible_mean=round(bench.mean_feasible())
    )
    placed_double = rate(double.replace, double.requests(PER_ROUND))
    report("P1_placement_double", placed_double, "decisions/s", nodes=2 * nodes, classes=CLASSES)
    report("P1_double_ratio", placed_double / placed, "ratio", nodes=f"{2 * nodes}/{nodes}")
    chosen = rate(lambda request: bench.placer.place(request, NOW), requests)
    plain = rate(PlainPass(bench).choose, requests)
    report("P1_choice_only", chosen, "decisions/s", **sizes)
    report("P1_plain_numpy_pass", plain, "decisions/s", **sizes)
    report("P1_plain_ratio", chosen / plain, "ratio", **sizes)
    report("P1_cold_class", cold_rate(bench), "decisions/s", nodes=nodes)
    refused = [impossible_class(bench.rng, number) for number in range(CLASSES)]
    explained = rate(lambda request: bench.placer.explain(request, NOW), refused)
    report("P2_explain", explained, "explanations/s", **sizes)


if __name__ == "__main__":
    main()

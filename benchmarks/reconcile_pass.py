"""Reconcile pass: what a steady cluster costs, in seconds of this process's CPU.

`python -m benchmarks.reconcile_pass [--nodes 1000] [--per-node 20]` prints lines of
`name value unit size…`. A real scheduler runs on a memory store; its agents answer that everything
runs, from memory or over gRPC out of another process, so that what agents cost is not counted.
Whatever else the scheduler does in an interval is. Goals: docs/goals.md, P5.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

from attrs import define, evolve, field, frozen

from benchmarks.mirror_agents import mirror_agents
from benchmarks.placement import report
from benchmarks.steady_cluster import Size, build, node_id, reports_of
from persys_adapters.agent_grpc.agents import GrpcAgents
from persys_adapters.system_clock import SystemClock
from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.scheduler import Scheduler
from persys_core.memory.agents import MemoryAgents
from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.event_log import MemoryEventLog
from persys_core.memory.liveness import MemoryLiveness
from persys_core.memory.membership import MemoryMembership
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport
from persys_core.nodes.liveness import LivenessPolicy
from persys_core.ports.agents import Agents
from persys_core.ports.observer import Metric, NullObserver
from persys_core.sim.agent_cluster import SimulatedMachines

__all__ = ["Cost", "main", "measure"]

PASSES = 6
WARM_UP = 2
INTERVAL_SECONDS = 1.0
_DAY = timedelta(days=1)


@frozen
class Cost:
    """What one interval with one pass cost: of several, the best in which most was asked.

    A pass leaves out what was listed less than an interval before. ``lists`` are the calls of that
    pass; ``writes`` (revisions of the store) and ``other_calls`` are those of all passes together.
    """

    cpu_seconds: float
    lists: int
    writes: int
    other_calls: int


class AnsweringAgents(MemoryAgents):
    """Answers a list at once with what it was given."""

    def __init__(self, lists: Mapping[str, tuple[AgentReport, ...]]) -> None:
        super().__init__(SimulatedMachines(SystemClock()))
        self._lists = lists

    async def list(self, node: Node, timeout: timedelta) -> Sequence[AgentReport]:
        return self._lists[node.id]


@define
class Gauge(NullObserver):
    """Reads the CPU clock and the number of lists at the end of each pass; counts other calls."""

    marks: list[tuple[float, int]] = field(factory=list)
    lists: int = 0
    other_calls: int = 0
    passed: asyncio.Event = field(factory=asyncio.Event)

    def increment(self, metric: Metric, labels: Mapping[str, str], by: int = 1) -> None:
        """Count."""
        if metric is Metric.RECONCILE_CYCLES:
            self.marks.append((time.process_time(), self.lists))
            self.passed.set()
        elif metric is Metric.AGENT_CALLS:
            is_list = labels["rpc"] == "ListWorkloads"
            self.lists += by * is_list
            self.other_calls += by * (not is_list)

    async def passes(self, count: int) -> None:
        """Wait for so many more passes."""
        wanted = len(self.marks) + count
        while len(self.marks) < wanted:
            self.passed.clear()
            await self.passed.wait()


async def measure(backend: MemoryClusterBackend, agents: Agents, interval: float) -> Cost:
    """Run a scheduler over ``backend`` for some passes."""
    gauge = Gauge()
    scheduler = Scheduler(_ports(backend, agents, gauge), _config(interval))
    await scheduler.start()
    try:
        await gauge.passes(WARM_UP)
        gc.collect()
        revision, gauge.other_calls = backend.revision, 0
        await gauge.passes(PASSES)
        writes = backend.revision - revision
    finally:
        await scheduler.stop()
        await agents.aclose()
    lists, cpu = min(
        (before[1] - after[1], after[0] - before[0])
        for before, after in pairwise(gauge.marks[WARM_UP - 1 :])
    )
    return Cost(cpu, -lists, writes, gauge.other_calls)


def _ports(backend: MemoryClusterBackend, agents: Agents, gauge: Gauge) -> SchedulerPorts:
    clock, store = SystemClock(), MemoryClusterStore(backend)
    return SchedulerPorts(
        store=store,
        liveness=MemoryLiveness(clock, lease=_DAY),
        membership=MemoryMembership(ElectionHub(), store, clock, "bench"),
        agents=agents,
        events=MemoryEventLog(1000, clock),
        telemetry=MemoryTelemetry(clock=clock),
        clock=clock,
        rng=random.Random(1),
        observer=gauge,
    )


def _config(interval: float) -> SchedulerConfig:
    """No heartbeats are sent here, so every node is to count as alive without them."""
    return SchedulerConfig(
        liveness=LivenessPolicy(heartbeat_interval=_DAY, unavailable_grace=_DAY * 3),
        reconcile_interval=timedelta(seconds=interval),
    )


def from_memory(size: Size) -> Cost:
    """With agents that answer in this process."""
    lists = {node_id(each): reports_of(each, size.per_node) for each in range(size.nodes)}
    return asyncio.run(measure(build(size), AnsweringAgents(lists), INTERVAL_SECONDS))


def over_grpc(size: Size) -> Cost:
    """With agents of another process; intervals are longer, so that both fit."""
    with mirror_agents(size.nodes, size.per_node) as endpoints:
        backend = build(size, endpoints)

        async def run() -> Cost:
            return await measure(backend, GrpcAgents(), INTERVAL_SECONDS * 2)

        return asyncio.run(run())


def _tell(name: str, cost: Cost, size: Size) -> None:
    report(
        name,
        cost.cpu_seconds,
        "s",
        nodes=size.nodes,
        workloads=size.workloads,
        writes=cost.writes,
        rpcs=cost.lists,
        other_rpcs=cost.other_calls,
    )


def _allow_many_connections(nodes: int) -> bool:
    """Two descriptors per node, here and there, and some more."""
    wanted = nodes * 3 + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--per-node", type=int, default=20)
    given = parser.parse_args(arguments)
    size = Size(given.nodes, given.per_node)
    half = evolve(size, nodes=size.nodes // 2)
    kinds = {"P5_reconcile_pass": from_memory}
    if _allow_many_connections(size.nodes):
        kinds["P5_reconcile_pass_grpc"] = over_grpc
    else:
        sys.stderr.write("too few file descriptors for one agent per node; gRPC is left out\n")
    for name, run in kinds.items():
        cost, cost_of_half = run(size), run(half)
        _tell(name, cost, size)
        _tell(f"{name}_half", cost_of_half, half)
        report(f"{name}_ratio", cost.cpu_seconds / cost_of_half.cpu_seconds, "x", size="2x")


if __name__ == "__main__":
    main()

"""Store writes: what a steady cluster writes in half a day of virtual time.

`python -m benchmarks.store_writes [--hours 12]` prints lines of `name value unit size…`. A write is
one revision of the store. 100 workloads of which some end by themselves run on 10 agents that beat
every 10 s with their usage; reconcile passes are 5 s apart. Goals: docs/proofs.md, P6.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import timedelta

from attrs import evolve, frozen

from benchmarks.placement import report
from persys_adapters.records.codec import encode
from persys_core.control.config import SchedulerConfig
from persys_core.control.requests import ApplyWorkload
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec
from persys_core.model.states import RestartPolicy, WorkloadType
from persys_core.ports.cluster_store import Commit, Put
from persys_core.sim.agent_settings import our_agent
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import SimulatedCluster
from persys_core.sim.loop import run_virtual

__all__ = ["Writes", "main", "measure"]

NODES, WORKLOADS = 10, 100
SETTLED_AFTER = timedelta(minutes=10)


@frozen
class Writes:
    """Revisions in all, and after the cluster had settled; ``put_bytes``: all values written."""

    total: int
    steady: int
    put_bytes: int


async def measure(clock: VirtualClock, duration: timedelta) -> Writes:
    """Run the cluster for so long."""
    cluster = SimulatedCluster(
        clock, config=SchedulerConfig(reconcile_interval=timedelta(seconds=5))
    )
    size = 0

    def count(commit: Commit, _revision: int) -> None:
        nonlocal size
        puts = (write for write in commit.writes if isinstance(write, Put))
        size += sum(len(encode(put.key, put.value, commit.token)) for put in puts)

    cluster.backend.on_commit(count)
    await cluster.start_replica()
    for number in range(NODES):
        cluster.add_machine(
            evolve(our_agent(f"n{number}"), cpu_millicores=16_000, memory_mb=65_536)
        )
    await clock.sleep(timedelta(seconds=30))
    for number in range(WORKLOADS):
        await cluster.api().admission.apply_workload(ApplyWorkload(f"w{number}", _spec(number)))
    await clock.sleep(SETTLED_AFTER - timedelta(seconds=30))
    settled = cluster.backend.revision
    await clock.sleep(duration - SETTLED_AFTER)
    total = cluster.backend.revision
    await cluster.stop()
    return Writes(total, total - settled, size)


def _spec(number: int) -> WorkloadSpec:
    """One in ten is a job that ends."""
    image = "job" if number % 10 == 0 else "nginx"
    body = ContainerSpec(image, restart_policy=RestartPolicy.NO)
    return WorkloadSpec(
        WorkloadType.CONTAINER, Resources.of(cpu_millicores=500, memory_mb=256), body
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=12)
    hours: float = parser.parse_args(arguments).hours
    writes = run_virtual(lambda clock: measure(clock, timedelta(hours=hours)))
    sizes = {"nodes": NODES, "workloads": WORKLOADS, "hours": hours, "redis": "off"}
    report("P6_store_writes", writes.total, "revisions", **sizes)
    report("P6_store_writes_after_10_minutes", writes.steady, "revisions", **sizes)
    report("P6_values_written", writes.put_bytes / 1e6, "MB", **sizes)


if __name__ == "__main__":
    main()

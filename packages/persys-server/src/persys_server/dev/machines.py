"""The machines of a demonstration: a few kinds, taken in turn; and the simulated ones.

Decided here: what they are like. They differ in size, in what they can run and in their labels,
so that placement has something to decide; the first can run everything. Real nodes have the same
sizes, and a simulated one beside them for what Docker does not run.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta
from itertools import cycle, islice

from attrs import evolve, frozen

from persys_agent.simulated.fleet import SimulatedFleet
from persys_core.model.node import StoragePool
from persys_core.model.states import WorkloadType
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.agent_settings import AgentSettings, Latency, our_agent

__all__ = ["PREFIX", "REAL_PREFIX", "add_machine_for_vms", "add_machines", "machines"]

PREFIX, REAL_PREFIX = "sim", "node"
_VERSION = "persys-agent 0.1.0 (simulated)"
_MB_PER_GB = 1024
_CREATE, _QUICK = Latency.of(0.4, 1.2), Latency.of(0.05, 0.3)
# Jobs end while one looks on.
_PLAN = FaultPlan(run_for=(timedelta(seconds=1), timedelta(seconds=2)))


@frozen
class _Kind:
    cores: int
    memory_gb: int
    types: frozenset[WorkloadType]
    labels: tuple[tuple[str, str], ...]


_CONTAINER, _COMPOSE, _VM = WorkloadType.CONTAINER, WorkloadType.COMPOSE, WorkloadType.VM
_KINDS = (
    _Kind(16, 32, frozenset({_CONTAINER, _COMPOSE, _VM}), (("zone", "a"), ("gpu", "yes"))),
    _Kind(8, 16, frozenset({_CONTAINER, _COMPOSE}), (("zone", "b"),)),
    _Kind(8, 32, frozenset({_CONTAINER, _COMPOSE}), (("zone", "a"), ("disk", "ssd"))),
    _Kind(4, 8, frozenset({_CONTAINER}), (("zone", "b"),)),
)


def machines(count: int, prefix: str = PREFIX) -> Iterator[AgentSettings]:
    """The settings of ``count`` machines, ``sim-1`` first."""
    for number, kind in enumerate(islice(cycle(_KINDS), count), start=1):
        yield evolve(
            our_agent(f"{prefix}-{number}"),
            version=_VERSION,
            cpu_millicores=kind.cores * 1000,
            memory_mb=kind.memory_gb * _MB_PER_GB,
            storage_pools=(StoragePool("root", "local", 200),),
            workload_types=kind.types,
            labels=dict(kind.labels),
            boot_salt=f"{secrets.token_hex(8)}-",
            create=_CREATE,
            start=_QUICK,
            stop=_QUICK,
            delete=_QUICK,
        )


async def add_machines(fleet: SimulatedFleet, count: int) -> None:
    """Switch ``count`` machines of these kinds on."""
    for settings in machines(count):
        await fleet.add(settings=settings, plan=_PLAN)


async def add_machine_for_vms(fleet: SimulatedFleet) -> None:
    """Switch one on that runs virtual machines and nothing else."""
    (settings,) = machines(1)
    types = frozenset({WorkloadType.VM, WorkloadType.MICROVM})
    await fleet.add(settings=evolve(settings, node_id=f"{PREFIX}-vm", workload_types=types))

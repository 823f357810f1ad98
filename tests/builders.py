"""Builders: test objects in one line, so that a test shows only what it is about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from attrs import evolve

from persys_core.control.answers import ApplyAnswer, WorkloadView
from persys_core.control.config import SchedulerConfig
from persys_core.control.requests import ApplyWorkload, RegisterNode
from persys_core.model.event import Event, EventFilter
from persys_core.model.node import Node, StoragePool, capacity_of
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, ManagedVolume, WorkloadSpec
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_core.ports.agents import Agents
from persys_core.ports.clock import Clock
from persys_core.ports.observer import Metric
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.agent_settings import AgentSettings, our_agent
from persys_core.sim.cluster import SimulatedCluster

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_node(
    node_id: str = "n1",
    *,
    cpu: int = 4000,
    memory: int = 8192,
    disk: int = 100,
    reserved: Resources = Resources(),
    labels: Mapping[str, str] | None = None,
    types: frozenset[WorkloadType] = frozenset(WorkloadType),
) -> Node:
    """A node record; cpu in millicores, memory in MB, disk in GB."""
    pools = (StoragePool("root", "local", disk),)
    return Node(
        node_id,
        capacity_of(cpu, memory, pools),
        "127.0.0.1:50051",
        types,
        START,
        reserved=reserved,
        storage_pools=pools,
        agent_labels=labels or {},
    )


def container(
    image: str = "nginx",
    *,
    cpu: int = 1000,
    memory: int = 128,
    restart: RestartPolicy = RestartPolicy.NO,
    env: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    volumes: tuple[ManagedVolume, ...] = (),
) -> WorkloadSpec:
    """The spec of a container."""
    body = ContainerSpec(image, env=env or {}, restart_policy=restart, managed_volumes=volumes)
    resources = Resources.of(cpu_millicores=cpu, memory_mb=memory)
    return WorkloadSpec(WorkloadType.CONTAINER, resources, body, metadata or {})


def wish(
    workload_id: str, spec: WorkloadSpec | None = None, desired: DesiredState | None = None
) -> ApplyWorkload:
    """An apply request; without a spec and a desired state, of a plain container."""
    if spec is None and desired is None:
        spec = container()
    return ApplyWorkload(workload_id, spec, desired)


def registration(node_id: str = "n1", *, cpu: int = 4000, memory: int = 8192) -> RegisterNode:
    """How a node presents itself, without a simulated machine behind it."""
    return RegisterNode(
        node_id,
        capacity_of(cpu, memory, (StoragePool("root", "local", 100),)),
        "127.0.0.1:50051",
        frozenset(WorkloadType),
    )


def machine(node_id: str, *, cpu: int = 4000, memory: int = 65_536) -> AgentSettings:
    """A simulated machine with an agent of ours."""
    return evolve(our_agent(node_id), cpu_millicores=cpu, memory_mb=memory)


class Driver:
    """A running simulated cluster with the few verbs that tests use."""

    def __init__(self, cluster: SimulatedCluster, clock: Clock) -> None:
        self.cluster = cluster
        self.clock = clock

    async def wait(self, **duration: float) -> None:
        """Let virtual time pass."""
        await self.clock.sleep(timedelta(**duration))

    async def apply(self, workload_id: str, spec: WorkloadSpec | None = None) -> ApplyAnswer:
        """Apply a container."""
        return await self.cluster.api().admission.apply_workload(wish(workload_id, spec))

    async def desire(self, workload_id: str, desired: DesiredState) -> ApplyAnswer:
        """Start or stop."""
        request = wish(workload_id, None, desired)
        return await self.cluster.api().admission.apply_workload(request)

    async def view(self, workload_id: str) -> WorkloadView:
        """The workload as shown."""
        view, _ = await self.cluster.api().queries.get_workload(workload_id)
        return view

    async def status(self, workload_id: str) -> str:
        """The workload's status word."""
        return (await self.view(workload_id)).status.status.value

    async def node_of(self, workload_id: str) -> str:
        """The assigned node's id; empty where there is none."""
        assignment = (await self.view(workload_id)).assignment
        return assignment.node_id if assignment else ""

    async def events(self, kind: str = "", workload_id: str = "") -> list[Event]:
        """What was told, oldest first."""
        return list(await self.cluster.events.list(EventFilter(kind, workload_id)))

    def calls(self, kind: str, workload_id: str = "", node_id: str = "") -> int:
        """How many calls of a kind (``apply``, ``delete``) reached agents."""
        return sum(
            entry.what == kind and workload_id in ("", entry.workload_id)
            for model in self.cluster.machines
            if node_id in ("", model.settings.node_id)
            for entry in model.journal.entries
        )


@asynccontextmanager
async def running_cluster(
    clock: Clock,
    *machines: AgentSettings,
    config: SchedulerConfig | None = None,
    replicas: int = 1,
    settle: float = 5,
    plan: FaultPlan | None = None,
    wrap_agents: Callable[[Agents], Agents] = lambda agents: agents,
) -> AsyncIterator[Driver]:
    """Replicas and machines, started and registered; fails the test if a bug was counted."""
    cluster = SimulatedCluster(clock, config=config or SchedulerConfig(), wrap_agents=wrap_agents)
    for _ in range(replicas):
        await cluster.start_replica()
    for settings in machines:
        cluster.add_machine(settings, plan)
    driver = Driver(cluster, clock)
    await driver.wait(seconds=settle)
    try:
        yield driver
    finally:
        await cluster.stop()
    bugs = sum(replica.observer.count(Metric.BUGS) for replica in cluster.replicas)
    assert bugs == 0, f"{bugs} bugs were counted"

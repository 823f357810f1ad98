"""SimulatedCluster: scheduler replicas and machines on one store, all in virtual time.

Decided here: how the parts are put together for the simulator, for tests and for embedders. The
replicas are the real ones; only their ports are in memory.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from attrs import define, evolve, field

from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.config import HaConfig, SchedulerConfig, SchedulerPorts
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.control.scheduler import Scheduler
from persys_core.memory.agents import MemoryAgents
from persys_core.memory.cluster_memory import MemoryClusterMemory
from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.event_log import MemoryEventLog
from persys_core.memory.liveness import MemoryLiveness
from persys_core.memory.membership import MemoryMembership
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.errors import PersysError
from persys_core.model.ids import NodeId
from persys_core.ports.agents import Agents
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_memory import ClusterMemory
from persys_core.ports.cluster_store import ClusterStore
from persys_core.ports.observer import Observer
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.agent_cluster import SimulatedMachines
from persys_core.sim.agent_settings import AgentSettings
from persys_core.sim.counting import CountingObserver
from persys_core.sim.rng import stream

__all__ = ["Replica", "SimulatedCluster"]

TTL = timedelta(seconds=15)


@define(eq=False)
class Replica:
    """One scheduler replica and what can be done to it."""

    scheduler: Scheduler
    membership: MemoryMembership
    observer: CountingObserver
    is_up: bool = False
    is_gone: bool = False


@define(eq=False)
class SimulatedCluster:
    """Machines, a store, and any number of replicas. ``config`` is every replica's.

    ``wrap_store`` and ``wrap_agents`` put faults between a replica and the shared parts.
    """

    clock: Clock
    seed: int = 0
    config: SchedulerConfig = field(factory=SchedulerConfig)
    backend: MemoryClusterBackend = field(factory=MemoryClusterBackend)
    memory: ClusterMemory = field(factory=MemoryClusterMemory)
    wrap_store: Callable[[ClusterStore], ClusterStore] = lambda store: store
    wrap_agents: Callable[[Agents], Agents] = lambda agents: agents
    events: MemoryEventLog = field(init=False)
    liveness: MemoryLiveness = field(init=False)
    machines: SimulatedMachines = field(init=False)
    replicas: list[Replica] = field(factory=list, init=False)
    _hub: ElectionHub = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.events = MemoryEventLog(clock=self.clock)
        # The database ends leases by itself, whatever stands between it and the replicas.
        self._hub = ElectionHub(MemoryClusterStore(self.backend))
        self.liveness = MemoryLiveness(self.clock, self.config.liveness.lease)
        self.machines = SimulatedMachines(self.clock, seed=self.seed)

    async def start_replica(self, ha: HaConfig | None = None) -> Replica:
        """One more replica, started. ``ha``: how it shares the work, where not as ``config`` says;
        in active-active mode replicas take one shard after the other otherwise."""
        serial = len(self.replicas)
        store = self.wrap_store(MemoryClusterStore(self.backend))
        membership = MemoryMembership(self._hub, store, self.clock, f"replica-{serial}", TTL)
        observer = CountingObserver()
        ports = self._ports(store, membership, stream(self.seed, "replica", serial), observer)
        replica = Replica(Scheduler(ports, self._config(ha)), membership, observer)
        self.replicas.append(replica)
        await replica.scheduler.start()
        replica.is_up = True
        return replica

    def _config(self, ha: HaConfig | None) -> SchedulerConfig:
        return evolve(self.config, ha=ha or evolve(self.config.ha, shard_index=self._free_shard()))

    def _free_shard(self) -> int:
        """The shard that the fewest replicas stand for."""
        shards = range(self.config.ha.shard_count)
        taken = Counter(
            replica.scheduler.config.ha.shard_index
            for replica in self.replicas
            if not replica.is_gone
        )
        return min(shards, key=lambda shard: (taken[shard], shard))

    def _ports(
        self,
        store: ClusterStore,
        membership: MemoryMembership,
        rng: random.Random,
        observer: Observer,
    ) -> SchedulerPorts:
        return SchedulerPorts(
            store=store,
            liveness=self.liveness,
            membership=membership,
            agents=self.wrap_agents(MemoryAgents(self.machines)),
            events=self.events,
            telemetry=MemoryTelemetry(),
            clock=self.clock,
            rng=rng,
            observer=observer,
            memory=self.memory,
        )

    def stranger(self, instance_id: str) -> MemoryMembership:
        """Another program that stands in this cluster's elections, and is no replica of it."""
        store = MemoryClusterStore(self.backend)
        return MemoryMembership(self._hub, store, self.clock, instance_id, TTL)

    async def crash(self, replica: Replica) -> None:
        """The replica's process dies: nothing is handed over, its lease runs out."""
        replica.is_up, replica.is_gone = False, True
        replica.membership.close()
        await replica.scheduler.abandon()

    async def stop_replica(self, replica: Replica) -> None:
        """The replica ends cleanly and resigns."""
        replica.is_up, replica.is_gone = False, True
        await replica.scheduler.stop()

    def add_machine(self, settings: AgentSettings, plan: FaultPlan | None = None) -> NodeId:
        """A machine whose agent speaks to whichever replica is up."""
        self.machines.add(settings, plan)
        self.machines.connect(settings.node_id, self._register, self._heartbeat)
        return settings.node_id

    async def _register(self, request: RegisterNode) -> RegisterAnswer:
        return await self.api().admission.register_node(request)

    async def _heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        return await self.api().admission.heartbeat(beat)

    def api(self) -> Scheduler:
        """A replica that is up, as a load balancer would choose it."""
        for replica in self.replicas:
            if replica.is_up:
                return replica.scheduler
        raise PersysError("no scheduler replica is up")

    async def stop(self) -> None:
        """End everything."""
        await self.machines.stop()
        for replica in self.replicas:
            if replica.is_up:
                await self.stop_replica(replica)

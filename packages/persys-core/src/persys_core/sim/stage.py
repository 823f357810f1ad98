"""The stage of a run: the cluster with its faulty store, its watched agents and its people.

Decided here: how the parts of the simulator are put around a ``SimulatedCluster``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.config import SchedulerConfig
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.ids import NodeId
from persys_core.ports.agents import Agents
from persys_core.ports.cluster_store import ClusterStore
from persys_core.sim.agent import MachineState
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import Replica, SimulatedCluster
from persys_core.sim.front_door import FrontDoor
from persys_core.sim.history import History
from persys_core.sim.operators import People
from persys_core.sim.rng import stream
from persys_core.sim.scenario import Scenario
from persys_core.sim.store_faults import FaultyStore, StoreWeather
from persys_core.sim.watcher import WatchedAgents, Watcher
from persys_core.sim.wishes import Wishes
from persys_core.sim.workloads import machine

__all__ = ["Stage"]


class Stage:
    """Everything of one run. ``sink`` gets the lines about ``traced`` ids as they are written."""

    def __init__(
        self,
        scenario: Scenario,
        clock: VirtualClock,
        *,
        traced: Iterable[str] = (),
        sink: Callable[[str], None] | None = None,
        spoil_store: Callable[[ClusterStore], ClusterStore] = lambda store: store,
    ) -> None:
        """``spoil_store`` is for tests that prove that a broken store is noticed."""
        self.scenario = scenario
        self.clock = clock
        self.history = History(clock, traced=traced, sink=sink)
        self.weather = StoreWeather()
        self.stores: list[FaultyStore] = []
        self._spoil_store = spoil_store
        self._starting: set[asyncio.Task[Replica]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._chance = stream(scenario.seed, "stage")
        self.cluster = SimulatedCluster(
            clock,
            scenario.seed,
            SchedulerConfig(orphan_policy=scenario.policy(), ha=scenario.ha),
            wrap_store=self._wrap_store,
            wrap_agents=self._wrap_agents,
        )
        self.wishes = Wishes()
        self.watcher = Watcher(self.cluster, self.wishes, self.history)
        self.door = FrontDoor(self.cluster, stream(scenario.seed, "door"))
        self.people = People(
            self.door,
            self.wishes,
            self.watcher,
            self.history,
            stream(scenario.seed, "people"),
            scenario.workloads,
            self.nodes,
            self.nodes_down,
            self.power,
        )

    def nodes(self) -> list[NodeId]:
        """Every machine, in the order in which it joined."""
        return [model.settings.node_id for model in self.cluster.machines]

    def nodes_down(self) -> list[NodeId]:
        """Those whose agent does not run at the moment."""
        machines = self.cluster.machines
        return [node for node in self.nodes() if machines.model(node).state is not MachineState.UP]

    def power(self, node_id: NodeId, on: bool) -> None:
        """Switch a machine on or off."""
        machines = self.cluster.machines
        if on:
            machines.revive(node_id)
        else:
            machines.kill(node_id)

    def add_node(self) -> None:
        """One more machine, switched on."""
        node_id = f"n{len(self.nodes())}"
        settings = machine(node_id, self._chance)
        machines = self.cluster.machines
        machines.add(settings, FaultPlan(failure_rate=0.02))
        machines.connect(node_id, self._register, self._beat)

    async def _register(self, request: RegisterNode) -> RegisterAnswer:
        self.watcher.hears(request.node_id)
        asked = self.wishes.may_register(request.node_id)
        answer = await self.door.call(lambda s: s.admission.register_node(request))
        if answer.accepted:
            self.wishes.registered(request.node_id, asked)
        return answer

    async def _beat(self, beat: Heartbeat) -> HeartbeatAnswer:
        self.watcher.hears(beat.node_id)
        if beat.boot_id:
            self.watcher.listed(beat.node_id, beat.reports)
        return await self.door.call(lambda s: s.admission.heartbeat(beat))

    def store_of(self, replica: Replica) -> FaultyStore:
        """The store of a replica, to cut it off."""
        return self.stores[self.cluster.replicas.index(replica)]

    async def fill_up_replicas(self) -> None:
        """Start replicas until there are as many as there shall be; they come up by themselves.

        While the store's data is away a new replica would take it for a new cluster's store.
        """
        if not self.watcher.data_is_whole:
            return
        up = sum(replica.is_up for replica in self.cluster.replicas)
        for _ in range(self.scenario.replicas - up - len(self._starting)):
            task = asyncio.get_running_loop().create_task(self.cluster.start_replica())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    @property
    def is_starting(self) -> bool:
        """Whether a replica is coming up."""
        return bool(self._starting)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Let ``task`` run until it ends or the run does."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End everything."""
        for task in (*self._starting, *self._tasks):
            task.cancel()
        await self.cluster.stop()

    def _wrap_store(self, store: ClusterStore) -> ClusterStore:
        serial = len(self.stores)
        faulty = FaultyStore(
            self._spoil_store(store),
            self.weather,
            self.clock,
            stream(self.scenario.seed, "store", serial),
        )
        self.stores.append(faulty)
        return faulty

    def _wrap_agents(self, agents: Agents) -> Agents:
        return WatchedAgents(agents, self.watcher, f"replica-{len(self.cluster.replicas)}")

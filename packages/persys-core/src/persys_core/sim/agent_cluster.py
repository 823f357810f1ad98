"""A set of simulated machines on one network, and the hand that breaks and mends them.

Decided here: what killing, pausing or wiping a machine means for its model, its links and its
loop towards the scheduler, all at once and in step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from attrs import define

from persys_core.model.ids import NodeId
from persys_core.ports.clock import Clock
from persys_core.sim.agent import AgentModel
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.agent_node import SendHeartbeat, SendRegistration, SimulatedNode
from persys_core.sim.agent_settings import AgentSettings
from persys_core.sim.faults import Network
from persys_core.sim.rng import stream

__all__ = ["SimulatedMachines"]

# The node's loop has a deadline of its own; the network needs none beyond it.
_FOR_EVER = timedelta(days=1)


@define(eq=False)
class _Machine:
    model: AgentModel
    gate: asyncio.Event
    node: SimulatedNode | None = None
    task: asyncio.Task[None] | None = None


class SimulatedMachines:
    """Machines by node id; ``seed`` decides the chance of each of them.

    Size: one method per thing that can happen to a machine.
    """

    def __init__(self, clock: Clock, *, seed: int = 0, network: Network | None = None) -> None:
        self.clock = clock
        self.network = network or Network(seed)
        self._seed = seed
        self._machines: dict[NodeId, _Machine] = {}

    def add(self, settings: AgentSettings, plan: FaultPlan | None = None) -> AgentModel:
        """Switch a new machine on."""
        model = AgentModel(settings, self.clock.now(), seed=self._seed, plan=plan)
        gate = asyncio.Event()
        gate.set()
        self._machines[settings.node_id] = _Machine(model, gate)
        return model

    def model(self, node_id: NodeId) -> AgentModel:
        """The model of a machine; raises ``KeyError`` for one that was never added."""
        return self._machines[node_id].model

    def find(self, node_id: NodeId) -> AgentModel | None:
        """The model of a machine, if there is one of this name."""
        machine = self._machines.get(node_id)
        return machine.model if machine else None

    def gate(self, node_id: NodeId) -> asyncio.Event:
        """Set while the machine's process is not paused."""
        return self._machines[node_id].gate

    def node(self, node_id: NodeId) -> SimulatedNode | None:
        """The machine's loop towards the scheduler, if it was connected."""
        return self._machines[node_id].node

    def __iter__(self) -> Iterator[AgentModel]:
        """The models, in the order in which they were added."""
        return (machine.model for machine in self._machines.values())

    def connect(
        self, node_id: NodeId, register: SendRegistration, heartbeat: SendHeartbeat
    ) -> SimulatedNode:
        """Let the machine register and beat, through the network, until it is killed."""
        machine, timeout = self._machines[node_id], _FOR_EVER
        machine.node = SimulatedNode(
            machine.model,
            lambda m: self.network.call(node_id, lambda: register(m), timeout, to_node=False),
            lambda m: self.network.call(node_id, lambda: heartbeat(m), timeout, to_node=False),
            self.clock,
            stream(self._seed, "node", node_id),
            machine.gate,
        )
        self._run(machine)
        return machine.node

    def kill(self, node_id: NodeId, *, wipe: bool = False) -> None:
        """Switch the machine off; with ``wipe`` its disk is lost."""
        machine = self._disconnect(node_id)
        machine.model.power_off(self.clock.now(), wipe=wipe)

    def kill_agent(self, node_id: NodeId) -> None:
        """Kill the agent's process only; workloads run on."""
        machine = self._disconnect(node_id)
        machine.model.halt(self.clock.now())

    def revive(self, node_id: NodeId) -> None:
        """Switch the machine on, or start the agent's process, again."""
        machine = self._machines[node_id]
        self.resume(node_id)
        machine.model.power_on(self.clock.now())
        self.network.bring_up(node_id)
        if machine.node is not None and machine.task is None:
            self._run(machine)

    def pause(self, node_id: NodeId) -> None:
        """Stop the agent's process in its tracks: it takes calls in and answers none."""
        machine = self._machines[node_id]
        machine.gate.clear()
        machine.model.pause(self.clock.now())
        self.network.pause(node_id)

    def resume(self, node_id: NodeId) -> None:
        """Let a paused process go on."""
        machine = self._machines[node_id]
        machine.gate.set()
        machine.model.resume(self.clock.now())
        self.network.resume(node_id)

    async def stop(self) -> None:
        """End every loop towards the scheduler."""
        tasks = [machine.task for machine in self._machines.values() if machine.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _disconnect(self, node_id: NodeId) -> _Machine:
        machine = self._machines[node_id]
        self.network.take_down(node_id)
        if machine.task is not None:
            machine.task.cancel()
            machine.task = None
        return machine

    def _run(self, machine: _Machine) -> None:
        assert machine.node is not None
        name = f"node {machine.model.settings.node_id}"
        machine.task = asyncio.get_running_loop().create_task(machine.node.run(), name=name)

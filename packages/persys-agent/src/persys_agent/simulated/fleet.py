"""``SimulatedFleet``: many simulated nodes in one process, each with a gRPC server of its own.

Decided here: how a node's server, its model and its loop towards the scheduler live and die
together. `persys-agent run --runtime simulated`, `persys-server dev`, tests and benches use it::

    async with SimulatedFleet(FleetOptions(nodes=3, scheduler="127.0.0.1:8085")) as fleet:
        await fleet.kill("sim-2")
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import grpc
import grpc.aio
from attrs import evolve

from persys_agent.clock import SystemClock
from persys_agent.control_client import ControlClient, open_control_channel
from persys_agent.simulated.service import SimulatedAgentService
from persys_core.model.errors import PersysError
from persys_core.model.ids import NodeId
from persys_core.model.node import StoragePool
from persys_core.model.states import WorkloadType
from persys_core.sim.agent import AgentModel
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.agent_cluster import SimulatedMachines
from persys_core.sim.agent_settings import AgentSettings, Latency, TaskOrder
from persys_core.sim.faults import LinkFaults, Network
from persys_proto.agent.v1 import agent_pb2_grpc

__all__ = ["FleetNode", "FleetOptions", "PortTakenError", "SimulatedFleet", "UnknownNodeError"]

_SERVER_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.max_send_message_length", 64 * 1024 * 1024))
_STOP_GRACE_SECONDS = 0.5
_VERSION = "persys-agent 0.1.0 (simulated)"
_DEFAULT_TYPES = (WorkloadType.CONTAINER, WorkloadType.COMPOSE, WorkloadType.VM)


class PortTakenError(PersysError):
    """A node cannot listen where it should."""


class UnknownNodeError(PersysError):
    """The fleet has no node of this name."""


@dataclass(frozen=True)
class FleetOptions:
    """What the nodes are like. Sizes in millicores, MB and GB; ``latency`` in seconds.

    ``scheduler`` empty: the nodes serve and register nowhere. ``listen`` is the host that servers
    bind to, ``advertise`` the one that the scheduler is told (empty: the same). ``legacy``: the
    nodes behave as the agents in the field do, defects included. ``failure_rate``: the share of
    creations that fail.
    """

    nodes: int = 1
    prefix: str = "sim"
    node_id: str = ""
    scheduler: str = ""
    listen: str = "127.0.0.1"
    advertise: str = ""
    cpu_millicores: int = 16_000
    memory_mb: int = 65_536
    disk_gb: int = 200
    workload_types: tuple[WorkloadType, ...] = _DEFAULT_TYPES
    storage_drivers: frozenset[str] = frozenset({"local"})
    labels: Mapping[str, str] = field(default_factory=dict)
    latency: float = 1.0
    failure_rate: float = 0.0
    seed: int | None = None
    legacy: bool = False
    server_credentials: grpc.ServerCredentials | None = None
    channel_credentials: grpc.ChannelCredentials | None = None


@dataclass(frozen=True)
class FleetNode:
    """A node as it stands: ``state`` is ``up``, ``paused`` or ``off``.

    ``running`` counts the workloads that really run; ``problem`` says why the scheduler cannot be
    reached, and is empty while all is well.
    """

    node_id: NodeId
    endpoint: str
    state: str
    running: int
    registrations: int
    problem: str


@dataclass
class _Served:
    port: int
    server: grpc.aio.Server | None = None
    service: SimulatedAgentService | None = None

    async def stop(self, grace: float | None) -> None:
        """Stop listening, with everything that was taken in."""
        if self.service is not None:
            self.service.drop()
        if self.server is not None:
            await self.server.stop(grace)
        self.server = self.service = None


class SimulatedFleet:
    """Belongs to the event loop that it is started on.

    Size: a verb for each thing that can happen to a node.
    """

    def __init__(self, options: FleetOptions | None = None) -> None:
        self.options = options or FleetOptions()
        self._clock = SystemClock()
        seed = self.options.seed
        self._seed = secrets.randbits(32) if seed is None else seed
        self._machines = SimulatedMachines(
            self._clock,
            seed=self._seed,
            network=Network(self._seed, LinkFaults(latency=Latency.of(0))),
        )
        self._served: dict[NodeId, _Served] = {}
        self._channel: grpc.aio.Channel | None = None
        self._count = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the nodes of the options. Raises ``PortTakenError``; nothing runs then."""
        try:
            for _ in range(self.options.nodes):
                await self.add()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End every node; may be called again."""
        await self._machines.stop()
        served = self._served.values()
        await asyncio.gather(*(each.stop(_STOP_GRACE_SECONDS) for each in served))
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def add(
        self,
        node_id: NodeId = "",
        settings: AgentSettings | None = None,
        plan: FaultPlan | None = None,
    ) -> FleetNode:
        """Start one more node, with the options' settings and faults unless others are given.

        The node's endpoint in ``settings`` is replaced by the port it gets.
        """
        node_id = node_id or (settings.node_id if settings else "") or self._next_id()
        server, port = self._bind(0)
        endpoint = self._endpoint(port)
        made = settings.listening_at(endpoint) if settings else self._settings(node_id, endpoint)
        made = evolve(made, claims_node_id=False)  # it gets another port at its next start
        model = self._machines.add(made, plan or FaultPlan(failure_rate=self.options.failure_rate))
        self._served[node_id] = _Served(port)
        await self._serve(node_id, server)
        if self.options.scheduler:
            client = ControlClient(self._control_channel())
            self._machines.connect(node_id, client.register, client.heartbeat)
        return self._view(model)

    async def kill(self, node_id: NodeId, *, wipe: bool = False) -> FleetNode:
        """Switch a node off: its workloads stop. ``wipe``: its disk is lost, too."""
        served = self._known(node_id)
        self._machines.kill(node_id, wipe=wipe)
        await served.stop(None)
        return self.node(node_id)

    async def pause(self, node_id: NodeId) -> FleetNode:
        """Let a node take calls in, answer none and send nothing; its workloads run on."""
        self._known(node_id)
        self._machines.pause(node_id)
        return self.node(node_id)

    async def revive(self, node_id: NodeId) -> FleetNode:
        """Let a paused node go on, or switch one that is off on again, at its endpoint."""
        served = self._known(node_id)
        if served.server is None:
            server, _ = self._bind(served.port)
            await self._serve(node_id, server)
        self._machines.revive(node_id)
        return self.node(node_id)

    async def relocate(self, node_id: NodeId) -> FleetNode:
        """Restart a node at another port, as after a change of its address."""
        await self.kill(node_id)
        server, port = self._bind(0)
        self._served[node_id].port = port
        model = self._machines.model(node_id)
        model.settings = model.settings.listening_at(self._endpoint(port))
        await self._serve(node_id, server)
        self._machines.revive(node_id)
        return self.node(node_id)

    def nodes(self) -> tuple[FleetNode, ...]:
        """Every node, in the order in which they were added."""
        return tuple(map(self._view, self._machines))

    def node(self, node_id: NodeId) -> FleetNode:
        """One node. Raises ``UnknownNodeError``."""
        self._known(node_id)
        return self._view(self._machines.model(node_id))

    def model(self, node_id: NodeId) -> AgentModel:
        """The model behind a node, with its journal. Raises ``UnknownNodeError``."""
        self._known(node_id)
        return self._machines.model(node_id)

    def _known(self, node_id: NodeId) -> _Served:
        served = self._served.get(node_id)
        if served is None:
            names = ", ".join(self._served) or "none"
            raise UnknownNodeError(f'there is no node "{node_id}"; the nodes are: {names}')
        return served

    def _view(self, model: AgentModel) -> FleetNode:
        node_id = model.settings.node_id
        node = self._machines.node(node_id)
        return FleetNode(
            node_id=node_id,
            endpoint=model.settings.endpoint,
            state=model.state,
            running=len(model.running(self._clock.now())),
            registrations=node.registrations if node else 0,
            problem=node.problem if node else "",
        )

    def _next_id(self) -> NodeId:
        self._count += 1
        if self.options.node_id and self.options.nodes == 1 and self._count == 1:
            return self.options.node_id
        return f"{self.options.prefix}-{self._count}"

    def _bind(self, port: int) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        address = _joined(self.options.listen, port)
        try:
            if self.options.server_credentials is None:
                return server, server.add_insecure_port(address)
            return server, server.add_secure_port(address, self.options.server_credentials)
        except RuntimeError as error:
            raise PortTakenError(
                f"cannot listen on {address}: the port is in use or the host is not one of this"
                " machine's addresses; choose another --listen"
            ) from error

    async def _serve(self, node_id: NodeId, server: grpc.aio.Server) -> None:
        service = SimulatedAgentService(
            self._machines.model(node_id),
            self._clock,
            self._machines.gate(node_id),
            is_interactive=not self.options.legacy,
        )
        agent_pb2_grpc.add_AgentServiceServicer_to_server(service, server)
        await server.start()
        served = self._served[node_id]
        served.server, served.service = server, service

    def _endpoint(self, port: int) -> str:
        return _joined(self.options.advertise or self.options.listen, port)

    def _control_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            options = self.options
            self._channel = open_control_channel(options.scheduler, options.channel_credentials)
        return self._channel

    def _settings(self, node_id: NodeId, endpoint: str) -> AgentSettings:
        options, ours = self.options, not self.options.legacy
        step = Latency.of(0, options.latency / 2)
        return AgentSettings(
            node_id=node_id,
            endpoint=endpoint,
            cpu_millicores=options.cpu_millicores,
            memory_mb=options.memory_mb,
            storage_pools=(StoragePool("root", "local", options.disk_gb),),
            workload_types=frozenset(options.workload_types),
            storage_drivers=options.storage_drivers,
            labels=options.labels,
            version=_VERSION if ours else "",
            boot_salt=f"{secrets.token_hex(8)}-",
            sends_boot_id=ours,
            sends_revision=ours,
            sends_usage=ours,
            fences=ours,
            masks_failures=not ours,
            hot_reregister=not ours,
            volume_data_on_request=ours,
            task_order=TaskOrder.FIFO if ours else TaskOrder.ANY,
            create=Latency.of(options.latency / 2, options.latency * 1.5),
            start=step,
            stop=step,
            delete=step,
        )


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""One replica's life: opened in order, served, and closed in the opposite order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta

import aiohttp
import grpc
import pytest
from attrs import define, evolve, field

from persys_adapters.agent_grpc.agents import GrpcAgents
from persys_adapters.system_clock import SystemClock
from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.standing import Standing
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.event_log import MemoryEventLog
from persys_core.memory.liveness import MemoryLiveness
from persys_core.memory.membership import MemoryMembership
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.states import OperatingMode, WorkloadType
from persys_core.ports.cluster_store import StoreUnavailableError
from persys_core.ports.observer import Observer
from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.server import PortTakenError
from persys_server.lifecycle import run_until, serving
from persys_server.scheduler_config import scheduler_config
from persys_server.settings import Settings, load_settings
from tests.unit.server.fakes import NOW, FakeScheduler, standing


@define
class Facts:
    """An operating mode."""

    mode: OperatingMode = OperatingMode.DEGRADED
    reason: str = "store away"
    since: datetime = NOW


@define
class Loop:
    """A loop that ended a pass two seconds ago."""

    def age(self) -> timedelta:
        return timedelta(seconds=2)


@define
class FakeReplica:
    """A scheduler that writes down what happens to it."""

    log: list[str] = field(factory=list)
    api: FakeScheduler = field(factory=FakeScheduler)
    start_gate: asyncio.Event = field(factory=asyncio.Event)
    mode: Facts = field(factory=Facts)
    standing: Standing = field(
        factory=lambda: standing(role="standby", leader_id="replica-2", owned_nodes=0)
    )
    loops: Mapping[str, Loop] = field(factory=lambda: {"reconcile": Loop()})

    @property
    def admission(self) -> FakeScheduler:
        return self.api

    queries = nodes = recovery = volumes = automation = admission

    async def start(self) -> None:
        self.log.append("start")
        await self.start_gate.wait()

    async def stop(self) -> None:
        self.log.append("stop")


@define
class World:
    """What a replica is started with."""

    replica: FakeReplica = field(factory=FakeReplica)
    settings: Settings = field(
        factory=lambda: evolve(
            load_settings({"PERSYS_STORE": "memory", "PERSYS_GRPC_ADDR": "127.0.0.1"}),
            grpc_port=0,
            metrics_port=0,
        )
    )
    config: SchedulerConfig | None = None

    async def ports(
        self, settings: Settings, observer: Observer, stack: AsyncExitStack
    ) -> SchedulerPorts:
        stack.callback(self.replica.log.append, "adapters closed")
        clock, store = SystemClock(), MemoryClusterStore()
        return SchedulerPorts(
            store=store,
            liveness=MemoryLiveness(clock),
            membership=MemoryMembership(ElectionHub(), store, clock, "replica-1"),
            agents=GrpcAgents(),
            events=MemoryEventLog(),
            telemetry=MemoryTelemetry(),
            clock=clock,
            rng=random.Random(1),
            observer=observer,
        )

    def scheduler(self, ports: SchedulerPorts, config: SchedulerConfig) -> FakeReplica:
        self.config = config
        return self.replica


@pytest.fixture
def world() -> World:
    """A replica that starts at once."""
    made = World()
    made.replica.start_gate.set()
    return made


@pytest.mark.asyncio
async def test_a_replica_serves_and_stops_in_order(world: World) -> None:
    """gRPC, HTTP, metrics and health answer; the adapters are closed last."""
    async with serving(world.settings, world.ports, world.scheduler) as served:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            answer = await agent_control_stub(channel).ListNodes(pb.ListNodesRequest())
            assert answer.nodes[0].node_id == "n1"
        async with aiohttp.ClientSession(f"http://127.0.0.1:{served.metrics_port}") as http:
            health = await (await http.get("/health")).json()
            assert (health["mode"], health["instance"], health["leader"]) == (
                "degraded", "replica-1", "replica-2",
            )  # fmt: skip
            ready = await http.get("/readyz")
            assert (ready.status, (await ready.json())["loopAgeSeconds"]) == (200, {"reconcile": 2})
            page = await (await http.get("/metrics")).text()
            assert 'persys_scheduler_nodes_status{status="ready"} 1.0' in page
            assert 'persys_scheduler_loop_age_seconds{loop="reconcile"} 2.0' in page
            assert "persys_scheduler_cache_age_seconds 3.0" in page
            assert "persys_scheduler_event_loop_lag_seconds" in page
            assert 'method="/persys.control.v1.AgentControl/ListNodes"' in page
    assert world.replica.log == ["start", "stop", "adapters closed"]


@pytest.mark.asyncio
async def test_probes_see_the_way_down(world: World) -> None:
    """While the loops end, HTTP still answers and says stopping; gRPC turns callers away."""
    seen: list[tuple[int, str]] = []
    ports: list[int] = []

    async def look() -> None:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{ports[0]}") as http:
            answer = await http.get("/readyz")
            seen.append((answer.status, (await answer.json())["notReadyReason"]))

    @define
    class Watched(FakeReplica):
        async def stop(self) -> None:
            await look()

    world.replica = Watched(start_gate=world.replica.start_gate)
    async with serving(world.settings, world.ports, world.scheduler) as served:
        ports.append(served.metrics_port)
    assert seen == [(503, "stopping")]


@pytest.mark.asyncio
async def test_metrics_answer_while_the_store_is_away(world: World) -> None:
    """What cannot be told is left out; the page itself never fails."""
    world.replica.api.error = StoreUnavailableError("away")
    async with (
        serving(world.settings, world.ports, world.scheduler) as served,
        aiohttp.ClientSession(f"http://127.0.0.1:{served.metrics_port}") as http,
    ):
        answer = await http.get("/metrics")
        page = await answer.text()
        assert answer.status == 200
        assert "persys_scheduler_nodes_status" not in page
        assert "persys_scheduler_loop_age_seconds" in page


@pytest.mark.asyncio
async def test_a_taken_port_closes_what_was_open(world: World) -> None:
    """A start that fails leaves nothing behind."""
    async with serving(world.settings, world.ports, world.scheduler) as served:
        second = World(settings=evolve(world.settings, grpc_port=served.grpc_port))
        with pytest.raises(PortTakenError):
            async with serving(second.settings, second.ports, second.scheduler):
                pass
        assert second.replica.log == ["adapters closed"]


@pytest.mark.asyncio
async def test_an_end_is_heard_while_serving_and_while_starting(world: World) -> None:
    """A store that never answers does not keep the process from ending."""
    for gate in (world.replica.start_gate, asyncio.Event()):
        replica = FakeReplica(start_gate=gate)
        world.replica = replica
        ended = asyncio.Event()
        life = asyncio.ensure_future(run_until(ended, world.settings, world.ports, world.scheduler))
        async with asyncio.timeout(5):
            while "start" not in replica.log:  # noqa: ASYNC110
                await asyncio.sleep(0)
            ended.set()
            await life
        assert replica.log == ["start", "stop", "adapters closed"]


@pytest.mark.asyncio
async def test_errors_of_the_start_come_through(world: World) -> None:
    """Whoever runs the replica learns why it did not start."""

    async def broken(
        settings: Settings, observer: Observer, stack: AsyncExitStack
    ) -> SchedulerPorts:
        raise StoreUnavailableError("locked by pid 7")

    with pytest.raises(StoreUnavailableError, match="pid 7"):
        await run_until(asyncio.Event(), world.settings, broken, world.scheduler)


def test_settings_reach_the_scheduler() -> None:
    """Each setting that is acted on arrives in the policy that it is meant for."""
    settings = load_settings(
        {
            "SCHEDULER_HEARTBEAT_INTERVAL": "7", "SCHEDULER_NODE_UNAVAILABLE_GRACE": "2m",
            "SCHEDULER_REAPPLY_GUARD": "20", "SCHEDULER_AGENT_APPLY_TIMEOUT": "50",
            "SCHEDULER_AGENT_VM_APPLY_TIMEOUT": "300", "SCHEDULER_MISSING_GRACE_PERIOD": "11",
            "SCHEDULER_AGENT_DELETE_TIMEOUT": "61", "SCHEDULER_AGENT_STATUS_POLL_INTERVAL": "2",
            "SCHEDULER_RECONCILE_INTERVAL": "6", "SCHEDULER_RECONCILE_CONCURRENCY": "3",
            "SCHEDULER_AGENT_RPC_TIMEOUT": "9",
        }
    )  # fmt: skip
    config = scheduler_config(settings)
    assert config.liveness.lease == timedelta(seconds=21)
    assert config.liveness.unavailable_grace == timedelta(minutes=2)
    assert config.apply_timeout(WorkloadType.COMPOSE) == timedelta(seconds=50)
    assert config.apply_timeout(WorkloadType.MICROVM) == timedelta(seconds=300)
    assert config.timing.missing_grace == timedelta(seconds=11)
    assert config.timing.delete_timeout == timedelta(seconds=61)
    assert config.timing.poll_interval == timedelta(seconds=2)
    assert config.reconcile_interval == timedelta(seconds=6)
    assert config.reconcile_concurrency == 3
    assert config.agent_rpc_timeout == timedelta(seconds=9)

"""Nodes that fall silent, come back, restart or beat out of order."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest
from attrs import evolve

from persys_core.control.config import SchedulerConfig
from persys_core.control.requests import Heartbeat, NodeIntentChange, NodeLabelChange
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.states import NodeStatus
from persys_core.nodes.liveness import LivenessPolicy
from persys_core.placement.ledger import Transaction
from persys_core.ports.agents import Agents, Unreachable
from persys_core.ports.cluster_store import Commit, Delete, Expectation, Key, Kind
from persys_core.ports.observer import Metric
from persys_core.sim.agent_settings import existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, registration, running_cluster

pytestmark = pytest.mark.slow


async def _node_status(driver: Driver, node_id: str = "n1") -> NodeStatus:
    view, _ = await driver.cluster.api().queries.get_node(node_id)
    return view.status


@virtual_time()
async def test_new_leader_gives_every_node_a_fresh_lease(clock: VirtualClock) -> None:
    """N02: a node silent for all but a moment of its lease is Ready after a take-over, and
    NotReady one full lease after it."""
    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        first, second = driver.cluster.replicas
        driver.cluster.machines.kill("n1")
        await driver.wait(seconds=20)
        await driver.cluster.stop_replica(first)
        await driver.wait(seconds=1)
        assert second.scheduler.is_leader
        await driver.wait(seconds=28)
        assert await _node_status(driver) is NodeStatus.READY
        await driver.wait(seconds=4)
        assert await _node_status(driver) is NodeStatus.NOT_READY


@virtual_time()
async def test_a_record_that_changes_while_the_lease_is_over_takes_no_node_away(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine registers anew between the end of its lease and its next beat, faster than the
    monitor looks: it is Ready, and placement sees it so."""
    async with running_cluster(clock, machine("n1")) as driver:
        scheduler = driver.cluster.replicas[0].scheduler
        change = NodeLabelChange(NodeIntentChange("n1"), "rack", "r2")
        with monkeypatch.context() as over:
            over.setattr(type(scheduler.ports.liveness), "is_alive", lambda *_: False)
            await scheduler.nodes.label(change)
        await driver.apply("w")
        await driver.wait(seconds=20)
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_returning_node_is_matched_before_anything_starts(clock: VirtualClock) -> None:
    """N04: w ran on n1, was replaced on n2, n1 returns running w: one delete on n1, no apply."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        first = await driver.node_of("w")
        other = "n2" if first == "n1" else "n1"
        driver.cluster.machines.network.cut(first)
        await driver.wait(minutes=5)
        assert (await driver.node_of("w"), await driver.status("w")) == (other, "Running")
        applies = driver.calls("apply", "w")
        driver.cluster.machines.network.cut(first, to_node=False, from_node=False)
        await driver.wait(minutes=2)
        assert driver.calls("delete", "w", first) == 1
        assert driver.calls("delete", "w", other) == 0
        assert driver.calls("apply", "w") == applies
        assert await driver.status("w") == "Running"


@virtual_time()
@pytest.mark.parametrize("persistence", ["", "node-local"])
async def test_single_node_returns_as_it_was(clock: VirtualClock, persistence: str) -> None:
    """N04: where no other node exists, n1 returns and nothing at all is sent to it."""
    metadata = {"persys.scheduling.persistence_class": persistence} if persistence else {}
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container(metadata=metadata))
        await driver.wait(seconds=20)
        driver.cluster.machines.network.cut("n1")
        await driver.wait(minutes=10)
        calls = driver.calls("apply"), driver.calls("delete")
        driver.cluster.machines.network.cut("n1", to_node=False, from_node=False)
        await driver.wait(minutes=2)
        assert (driver.calls("apply"), driver.calls("delete")) == calls
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_work_of_a_lost_node_moves_when_there_is_room_later(clock: VirtualClock) -> None:
    """What no other node took stays with its lost node, says so, and moves to the next that can."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        driver.cluster.machines.network.cut("n1")
        await driver.wait(minutes=10)
        assert (await driver.node_of("w"), await driver.status("w")) == ("n1", "Pending")
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=60)
        assert (await driver.node_of("w"), await driver.status("w")) == ("n2", "Running")


@virtual_time()
async def test_work_of_a_node_without_a_record_is_placed_elsewhere(clock: VirtualClock) -> None:
    """Defect C3: where another writer removed a node's record, its work moves; it is not waited
    for, and nothing is owed by a node that is no member."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=5)
        driver.cluster.machines.kill("n1")
        backend = driver.cluster.backend
        stored = backend.read(Key.node("n1"))
        assert stored is not None
        expected = Expectation(Key.node("n1"), revision=stored.revision)
        backend.apply(Commit((expected,), (Delete(Key.node("n1")),), "another writer"))
        await driver.wait(seconds=20)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)


class NobodyAnswers:
    """Agents whose nodes cannot be called, though their heartbeats arrive."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def _unreachable(self, *_: object) -> Unreachable:
        return Unreachable("connection refused")

    apply = delete = status = list = _unreachable

    def __getattr__(self, name: str) -> object:
        return getattr(self._agents, name)


@pytest.mark.slow
@virtual_time()
async def test_a_node_that_beats_and_cannot_be_called_does_not_flap(clock: VirtualClock) -> None:
    """Defect C15: readiness is the lease's alone. A refused call makes no node NotReady and a beat
    hides no refused call: the workload names it for as long as it lasts."""
    async with running_cluster(
        clock, machine("n1"), wrap_agents=lambda agents: cast(Agents, NobodyAnswers(agents))
    ) as driver:
        await driver.cluster.api().admission.register_node(registration("n1"))
        marker = driver.cluster.api().view.marker()
        assert marker is not None
        await _open_for_work(driver, "n1", marker.create_revision)
        await driver.apply("w")
        for _ in range(20):
            await driver.wait(minutes=1)
            assert await _node_status(driver) is NodeStatus.READY
        assert await driver.events("NodeLost") == []
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert reason.code == "agent_unreachable"


async def _open_for_work(driver: Driver, node_id: str, marker_revision: int) -> None:
    """As if the node had been listed in full."""
    scheduler = driver.cluster.api()
    stored = scheduler.view.node(node_id)
    assert stored is not None
    listed = evolve(stored.value, listed_under=marker_revision)
    await scheduler.committer.commit(Transaction().put(Key.node(node_id), listed, stored))


@virtual_time()
async def test_created_at_and_usage_outlive_every_write(clock: VirtualClock) -> None:
    """Defect E12: an update and a restart of the work keep when it was created, and what it was
    measured to use is still shown."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container("nginx:1"))
        created_at = (await driver.view("w")).workload.created_at
        await driver.wait(seconds=30)
        assert (await driver.view("w")).usage is not None
        await driver.apply("w", container("nginx:2"))
        assert (await driver.view("w")).usage is not None
        await driver.wait(seconds=30)
        view = await driver.view("w")
        assert view.workload.created_at == created_at
        assert view.usage is not None


@virtual_time()
async def test_late_heartbeat_is_acknowledged_and_dropped(clock: VirtualClock) -> None:
    """N07: of two beats of one boot only the higher sequence counts; a new boot counts again."""
    async with running_cluster(clock) as driver:
        admission = driver.cluster.api().admission
        await admission.register_node(registration("n1"))
        observer = driver.cluster.replicas[0].observer

        async def beat(boot: str, sequence: int) -> None:
            report = AgentReport("w", AgentState.RUNNING, "r")
            answer = await admission.heartbeat(
                Heartbeat("n1", (report,) if sequence < 0 else (), boot_id=boot, sequence=sequence)
            )
            assert answer.acknowledged

        await beat("a", 5)
        await beat("a", 4)
        assert observer.count(Metric.STALE_HEARTBEATS) == 1
        await beat("b", 1)
        assert observer.count(Metric.STALE_HEARTBEATS) == 1


@virtual_time()
async def test_stalled_scheduler_marks_nobody_down(clock: VirtualClock) -> None:
    """N08: after this process stood still for longer than the lease, with beats queued, no node
    is marked down."""
    policy = LivenessPolicy(
        heartbeat_interval=timedelta(seconds=1), unavailable_grace=timedelta(seconds=3)
    )
    config = SchedulerConfig(liveness=policy)
    async with running_cluster(clock, machine("n1"), machine("n2"), config=config) as driver:
        clock.step(timedelta(seconds=5))
        for _ in range(200):
            await asyncio.sleep(0)
        await driver.wait(seconds=3)
        assert await driver.events("NodeLost") == []
        assert await _node_status(driver) is NodeStatus.READY


@virtual_time()
async def test_operator_intent_survives_beats_and_registrations(clock: VirtualClock) -> None:
    """A cordon stays over heartbeats, registrations and a scheduler restart (decisions §2.9)."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.cluster.api().nodes.cordon(NodeIntentChange("n1", "disk swap"))
        request = driver.cluster.machines.model("n1").registration()
        await driver.cluster.api().admission.register_node(evolve(request, agent_version="2"))
        await driver.wait(minutes=1)
        await driver.cluster.crash(driver.cluster.replicas[0])
        await driver.cluster.start_replica()
        await driver.wait(minutes=1)
        view, _ = await driver.cluster.api().queries.get_node("n1")
        assert view.node.intent.cordoned
        assert view.node.agent_version == "2"
        assert (await driver.apply("w")).node_id == ""


@pytest.mark.slow
@virtual_time()
async def test_steady_heartbeats_write_nothing(clock: VirtualClock) -> None:
    """Liveness is not a write: an hour of beats and passes moves no store revision."""
    async with running_cluster(clock, machine("n1"), machine("n2"), existing_agent("n3")) as driver:
        for number in range(6):
            await driver.apply(f"w{number}")
        await driver.wait(minutes=5)
        revision = driver.cluster.backend.revision
        await driver.wait(hours=1)
        assert driver.cluster.backend.revision == revision


@virtual_time()
async def test_heartbeat_changes_only_what_its_sender_has(clock: VirtualClock) -> None:
    """Decisions §2.10: a beat that claims another node's workload changes nothing."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        other = "n2" if await driver.node_of("w") == "n1" else "n1"
        revision = driver.cluster.backend.revision
        lie = AgentReport("w", AgentState.FAILED, (await driver.view("w")).workload.revision_id)
        await driver.cluster.api().admission.heartbeat(Heartbeat(other, (lie,)))
        await driver.wait(seconds=1)
        assert driver.cluster.backend.revision == revision
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_node_comes_and_goes_events(clock: VirtualClock) -> None:
    """Joining, falling silent and returning are told once each."""
    async with running_cluster(clock, machine("n1")) as driver:
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=2)
        driver.cluster.machines.revive("n1")
        await driver.wait(minutes=2)
        kinds = [event.type.value for event in await driver.events() if event.node_id == "n1"]
        assert kinds == ["NodeJoined", "NodeLost", "NodeReady"]


@virtual_time()
async def test_clean_stop_lets_calls_under_way_end(clock: VirtualClock) -> None:
    """A scheduler that is stopped in the middle of an apply makes the call that it announced, so
    that its successor has nothing to wait out."""
    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        first, second = driver.cluster.replicas
        await driver.apply("w")
        await asyncio.sleep(0)
        await driver.cluster.stop_replica(first)
        await driver.wait(seconds=10)
        assert second.scheduler.is_leader
        assert await driver.status("w") == "Running"
        assert driver.calls("apply", "w") == 1


@pytest.mark.slow
@virtual_time()
async def test_work_does_not_wait_for_an_agent_that_cannot_be_called(clock: VirtualClock) -> None:
    """Defect C15: what was never started there moves after the grace, nothing new goes there, and
    the node takes work again once a call is answered."""
    walls: set[str] = set()
    three = (machine("n1"), machine("n2", cpu=1000), machine("n3", cpu=500))
    async with running_cluster(
        clock, *three, wrap_agents=lambda agents: cast(Agents, WalledOff(agents, walls))
    ) as driver:
        await driver.apply("runs", container(cpu=500))
        await driver.wait(seconds=20)
        assert await driver.node_of("runs") == "n1"
        walls.add("n1")
        await driver.cluster.api().nodes.cordon(NodeIntentChange("n2"))
        await driver.apply("w", container(cpu=1000))
        await driver.cluster.api().nodes.uncordon(NodeIntentChange("n2"))
        assert await driver.node_of("w") == "n1"
        await driver.wait(minutes=2)
        assert await driver.node_of("w") == "n1"
        await driver.wait(minutes=3)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        assert (await driver.status("runs"), await driver.node_of("runs")) == ("Running", "n1")
        (told,) = await driver.events("Rescheduled", "w")
        assert "answers no call since" in told.reason
        await driver.apply("big", container(cpu=2000))
        await driver.wait(minutes=1)
        assert await driver.status("big") == "Pending"
        walls.clear()
        await driver.wait(minutes=3)
        assert (await driver.status("big"), await driver.node_of("big")) == ("Running", "n1")


class WalledOff:
    """Agents of which some cannot be called, although they beat."""

    def __init__(self, agents: Agents, walls: set[str]) -> None:
        self._agents = agents
        self._walls = walls

    def __getattr__(self, name: str) -> object:
        call = getattr(self._agents, name)

        async def unless_walled_off(*args: object) -> object:
            node = args[0]
            if isinstance(node, Node) and node.id in self._walls:
                return "" if name == "last_error" else Unreachable("no route to host")
            return await call(*args)

        return unless_walled_off


@virtual_time()
async def test_a_new_leader_holds_no_old_failed_call_against_a_node(clock: VirtualClock) -> None:
    """C15: what failed in an earlier term of a replica is long ago; it counts from its lead on, or
    it would take work from a node that answered everybody meanwhile."""
    async with running_cluster(
        clock,
        machine("n1"),
        replicas=2,
        wrap_agents=lambda agents: cast(Agents, WalledOff(agents, {"n1"})),
    ) as driver:
        first, second = driver.cluster.replicas
        second.scheduler.reach.failed("n1")
        await driver.wait(seconds=170)
        await driver.cluster.stop_replica(first)
        await driver.wait(seconds=20)
        assert second.scheduler.is_leader
        assert second.scheduler.reach.is_uncalled("n1")
        assert second.scheduler.reach.uncallable_since("n1", nodes=10) is None
        await driver.wait(seconds=180)
        assert second.scheduler.reach.uncallable_since("n1", nodes=10) is not None

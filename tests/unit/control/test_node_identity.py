"""Two agents with one node id: who has it, and what the other one is told."""

from __future__ import annotations

import pytest
from attrs import evolve

from persys_core.control.requests import Heartbeat, NodeIntentChange, RegisterNode, RemoveNode
from persys_core.model.observation import AgentReport, AgentState
from persys_core.ports.observer import Metric
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, machine, registration, running_cluster

pytestmark = pytest.mark.slow

HERE, THERE = "10.0.0.1:50051", "10.0.0.2:50051"
LEASE = 30


def _agent(boot_id: str, endpoint: str = HERE) -> RegisterNode:
    return evolve(registration("n1"), endpoint=endpoint, boot_id=boot_id)


class _Sender:
    """An agent by hand: it registers and beats when it is told to."""

    def __init__(self, driver: Driver, boot_id: str, endpoint: str) -> None:
        self._driver = driver
        self._boot_id = boot_id
        self._endpoint = endpoint
        self._sequence = 0

    async def registers(self) -> bool:
        """Whether it is in."""
        request = _agent(self._boot_id, self._endpoint)
        answer = await self._driver.cluster.api().admission.register_node(request)
        assert answer.accepted != answer.id_taken
        return answer.accepted

    async def beats(self, *reports: AgentReport, replica: int = 0) -> bool:
        """Whether the scheduler takes it for the node's agent."""
        self._sequence += 1
        beat = Heartbeat("n1", reports, boot_id=self._boot_id, sequence=self._sequence)
        admission = self._driver.cluster.replicas[replica].scheduler.admission
        answer = await admission.heartbeat(beat)
        assert answer.acknowledged == answer.known
        return answer.known

    async def lives(self, seconds: int) -> None:
        """Beat every ten seconds."""
        for _ in range(seconds // 10):
            assert await self.beats()
            await self._driver.wait(seconds=10)


async def _endpoint(driver: Driver) -> str:
    view, _ = await driver.cluster.api().queries.get_node("n1")
    return view.node.endpoint


@virtual_time()
async def test_a_second_agent_does_not_get_the_id(clock: VirtualClock) -> None:
    """It is refused for as long as the first beats, and nothing of the node changes."""
    async with running_cluster(clock) as driver:
        first, second = _Sender(driver, "a", HERE), _Sender(driver, "b", THERE)
        assert await first.registers()
        for _ in range(10):
            await first.lives(10)
            assert not await second.registers()
            assert not await second.beats()
        assert await _endpoint(driver) == HERE
        first_told, then_told = await driver.events("NodeIdTaken")
        assert (first_told.node_id, first_told.details["refused_endpoint"]) == ("n1", THERE)
        assert then_told.details["count"] == "6", "once a minute, with those in between"


@virtual_time()
async def test_who_was_refused_keeps_nobody_alive(clock: VirtualClock) -> None:
    """Its registrations and its beats renew no lease, so an agent that moved is in after one."""
    async with running_cluster(clock) as driver:
        first, second = _Sender(driver, "a", HERE), _Sender(driver, "b", THERE)
        assert await first.registers()
        refused = 0
        while not await second.registers():
            assert not await second.beats()
            refused += 1
            await driver.wait(seconds=1)
        assert LEASE - 2 <= refused <= LEASE + 1
        assert await second.beats()
        assert await _endpoint(driver) == THERE


@virtual_time()
async def test_a_restart_is_in_at_once(clock: VirtualClock) -> None:
    """The same endpoint and another boot id; what the old process still sends is not taken."""
    async with running_cluster(clock) as driver:
        old, new = _Sender(driver, "a", HERE), _Sender(driver, "b", HERE)
        assert await old.registers()
        assert await old.beats()
        assert await new.registers()
        assert await new.beats()
        assert not await old.beats(AgentReport("w", AgentState.RUNNING))
        assert await new.beats()


@virtual_time()
async def test_two_agents_that_name_one_endpoint_do_not_take_turns(clock: VirtualClock) -> None:
    """The one that was replaced and comes back is no restart: it stays out."""
    async with running_cluster(clock) as driver:
        first, second = _Sender(driver, "a", HERE), _Sender(driver, "b", HERE)
        assert await first.registers()
        assert await second.registers()
        for _ in range(5):
            await second.lives(10)
            assert not await first.beats()
            assert not await first.registers()
        await driver.wait(seconds=LEASE + 1)
        assert await first.registers()
        assert await first.beats()


@virtual_time()
async def test_an_agent_that_gets_its_id_back_is_heard_again(clock: VirtualClock) -> None:
    """Its boot was replaced by another one for a while: its reports count again all the same."""
    async with running_cluster(clock, machine("n2")) as driver:
        first, second = _Sender(driver, "a", HERE), _Sender(driver, "b", THERE)
        assert await first.registers()
        await first.lives(20)
        await driver.wait(seconds=LEASE + 1)
        assert await second.registers()
        await second.lives(20)
        await driver.wait(seconds=LEASE + 1)
        assert await first.registers()
        observer = driver.cluster.replicas[0].observer
        before = observer.count(Metric.STALE_HEARTBEATS)
        assert await first.beats()
        assert observer.count(Metric.STALE_HEARTBEATS) == before


@virtual_time()
async def test_a_replica_that_is_behind_asks_the_store(clock: VirtualClock) -> None:
    """An agent that registered anew at another replica is not sent away by one that lags."""
    async with running_cluster(clock, replicas=2) as driver:
        old, new = _Sender(driver, "a", HERE), _Sender(driver, "b", HERE)
        assert await old.registers()
        await driver.wait(seconds=1)
        assert await new.registers()
        behind = driver.cluster.replicas[1].scheduler.view.node("n1")
        assert behind is not None
        assert behind.value.boot_id == "a", "it has heard already: this shows nothing"
        assert await new.beats(replica=1)
        assert not await old.beats(replica=1)


@virtual_time()
async def test_agents_that_say_no_boot_id_take_a_node_over_as_ever(clock: VirtualClock) -> None:
    """Those in the field, and those that send it in beats only, see no difference."""
    async with running_cluster(clock) as driver:
        admission = driver.cluster.api().admission
        for endpoint in (HERE, THERE):
            answer = await admission.register_node(_agent("", endpoint))
            assert answer.accepted
        assert await _endpoint(driver) == THERE
        for boot_id in ("", "a", "b"):
            beat = Heartbeat("n1", boot_id=boot_id, sequence=1 if boot_id else 0)
            assert (await admission.heartbeat(beat)).known


@virtual_time()
async def test_a_removed_node_leaves_its_id_free(clock: VirtualClock) -> None:
    """So that what the refusal advises is true."""
    async with running_cluster(clock) as driver:
        first, second = _Sender(driver, "a", HERE), _Sender(driver, "b", THERE)
        assert await first.registers()
        assert not await second.registers()
        nodes = driver.cluster.api().nodes
        await nodes.remove(RemoveNode(NodeIntentChange("n1", "it has moved", "ann")))
        assert await second.registers()

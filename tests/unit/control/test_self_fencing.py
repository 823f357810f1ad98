"""Agents that promise to stop exclusive work when they hear nothing, and what follows from it."""

from __future__ import annotations

import pytest
from attrs import evolve

from persys_core.control.requests import NodeIntentChange
from persys_core.model.event import EventType
from persys_core.model.spec import ManagedVolume
from persys_core.sim.agent_settings import AgentSettings
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

VOLUME = ManagedVolume("v", "nfs", size_gb=1, access_mode="ReadWriteOnce", mount_path="/v")
LEASE, MARGIN = 30, 30


def node(node_id: str, stop_after: int) -> AgentSettings:
    """A node whose agent stops exclusive work so many seconds after its lease."""
    drivers = frozenset({"local", "nfs"})
    return evolve(machine(node_id), storage_drivers=drivers, stop_after_seconds=stop_after)


async def work_on(driver: Driver, node_id: str) -> None:
    """``w`` runs there with an exclusive volume, and another node could take it."""
    await driver.apply("w", container(volumes=(VOLUME,)))
    await driver.wait(seconds=20)
    assert await driver.node_of("w") == node_id


async def fence_of(driver: Driver, node_id: str) -> str:
    """By whom the node is fenced; empty where it is not."""
    view, _ = await driver.cluster.api().queries.get_node(node_id)
    return view.node.fence.by if view.node.fence else ""


@virtual_time()
async def test_the_promise_is_a_fence_once_its_time_is_over(clock: VirtualClock) -> None:
    """Decisions §4: lease, stop_after and 30 s after the last beat the volume's node is fenced, not
    sooner, and its work moves without an operator once the grace is over."""
    stop_after = 40
    async with running_cluster(clock, node("n1", stop_after)) as driver:
        await work_on(driver, "n1")
        driver.cluster.add_machine(node("n2", 0))
        driver.cluster.machines.kill("n1")
        await driver.wait(seconds=LEASE + stop_after + MARGIN - 15)
        assert await fence_of(driver, "n1") == ""
        await driver.wait(seconds=20)
        assert await fence_of(driver, "n1") == "its agent"
        await driver.wait(minutes=3)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        (told,) = await driver.events(EventType.NODE_FENCED)
        assert "40 s after its lease" in told.reason


@virtual_time()
async def test_silence_without_the_promise_is_no_fence(clock: VirtualClock) -> None:
    """S02: an agent that says nothing of the kind may run its work for ever."""
    async with running_cluster(clock, node("n1", 0)) as driver:
        await work_on(driver, "n1")
        driver.cluster.add_machine(node("n2", 40))
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=15)
        assert await fence_of(driver, "n1") == ""
        assert (await driver.status("w"), await driver.node_of("w")) == ("Pending", "n1")


@virtual_time()
async def test_a_node_that_returns_is_fenced_no_more(clock: VirtualClock) -> None:
    """Who is heard is not cut off: the fence ends, and the next silence begins anew."""
    async with running_cluster(clock, node("n1", 10)) as driver:
        await work_on(driver, "n1")
        driver.cluster.machines.kill("n1")
        await driver.wait(seconds=LEASE + 10 + MARGIN + 10)
        assert await fence_of(driver, "n1") == "its agent"
        driver.cluster.machines.revive("n1")
        await driver.wait(seconds=60)
        assert await fence_of(driver, "n1") == ""
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_only_a_node_that_holds_something_is_fenced(clock: VirtualClock) -> None:
    """A node without exclusive volumes needs no fence, and an operator's own is left as it is."""
    async with running_cluster(clock, node("n1", 10), node("n2", 10)) as driver:
        await driver.apply("w", container(volumes=(VOLUME,)))
        await driver.wait(seconds=20)
        holder = await driver.node_of("w")
        other = "n2" if holder == "n1" else "n1"
        for each in (holder, other):
            driver.cluster.machines.kill(each)
        await driver.wait(seconds=LEASE + 5)
        await driver.cluster.api().volumes.fence(NodeIntentChange(holder, "pulled", "ann"))
        await driver.wait(minutes=3)
        assert (await fence_of(driver, holder), await fence_of(driver, other)) == ("ann", "")

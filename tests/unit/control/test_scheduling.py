"""The wishes of placement at work: strategies, labels, taints, priorities, and what comes back."""

from collections import Counter
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.requests import (
    DrainNode,
    NodeIntentChange,
    NodeLabelChange,
    NodeTaintChange,
)
from persys_core.model.node import StoragePool, capacity_of
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import TaintEffect
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

N1 = NodeIntentChange("n1")


def _wishing(cpu: int = 1000, labels: dict[str, str] | None = None, **wishes: str) -> WorkloadSpec:
    """A container with placement wishes; ``node_selector__zone`` is ``node_selector.zone``."""
    keys = {f"persys.scheduling.{k.replace('__', '.')}": value for k, value in wishes.items()}
    return container(cpu=cpu, metadata={**(labels or {}), **keys})


async def _nodes(driver: Driver, *names: str) -> list[str]:
    return [await driver.node_of(name) for name in names]


@pytest.mark.parametrize(
    ("strategy", "per_node"), [("spread", [2, 2]), ("binpack", [4]), ("", [2, 2])]
)
@virtual_time()
async def test_each_workload_chooses_its_strategy(
    clock: VirtualClock, strategy: str, per_node: list[int]
) -> None:
    """persys.scheduling.strategy: spread (the default) levels, binpack fills one node first."""
    spec = _wishing(cpu=500, strategy=strategy) if strategy else _wishing(cpu=500)
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        for number in range(4):
            await driver.apply(f"w{number}", spec)
            await driver.wait(seconds=1)
        found = Counter(await _nodes(driver, "w0", "w1", "w2", "w3"))
        assert sorted(found.values()) == per_node


@virtual_time()
async def test_spread_by_levels_over_a_label(clock: VirtualClock) -> None:
    """spread_by: two racks with three nodes and one get two workloads each."""
    racks = {"n1": "a", "n2": "a", "n3": "a", "n4": "b"}
    nodes = [evolve(machine(name, cpu=64_000), labels={"rack": r}) for name, r in racks.items()]
    async with running_cluster(clock, *nodes) as driver:
        for number in range(4):
            await driver.apply(f"w{number}", _wishing(cpu=10, spread_by="rack"))
            await driver.wait(seconds=1)
        found = Counter(racks[node] for node in await _nodes(driver, "w0", "w1", "w2", "w3"))
        assert found == {"a": 2, "b": 2}


@virtual_time()
async def test_anti_affinity_keeps_apart(clock: VirtualClock) -> None:
    """No node runs two with the label; the one too many waits for that reason, and is placed when
    one of the others goes."""
    spec = _wishing(labels={"app": "db"}, anti_affinity="app=db")
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        for name in ("a", "b", "c"):
            await driver.apply(name, spec)
            await driver.wait(seconds=1)
        assert sorted(await _nodes(driver, "a", "b", "c")) == ["", "n1", "n2"]
        reason = (await driver.view("c")).status.reason
        assert reason is not None
        assert reason.code == "anti_affinity"
        left = await driver.node_of("a")
        await driver.cluster.api().admission.delete_workload("a", force=False)
        await driver.wait(seconds=30)
        assert await driver.node_of("c") == left


@virtual_time()
async def test_selectors_tolerations_and_exclusions(clock: VirtualClock) -> None:
    """Each wish names its node; what tolerates nothing stays away from the tainted one."""
    nodes = [evolve(machine(name), labels={"name": name}) for name in ("n1", "n2", "n3")]
    async with running_cluster(clock, *nodes) as driver:
        await driver.cluster.api().nodes.taint(
            NodeTaintChange(N1, "gpu", "yes", TaintEffect.NO_SCHEDULE)
        )
        await driver.apply("selects", _wishing(node_selector__name="n2"))
        await driver.apply("excludes", _wishing(exclude_nodes="n1,n2"))
        await driver.apply("plain", _wishing(exclude_nodes="n2,n3"))
        await driver.apply("tolerates", _wishing(exclude_nodes="n2,n3", tolerations="gpu=yes"))
        await driver.apply("other", _wishing(exclude_nodes="n2,n3", tolerations="gpu=no"))
        found = await _nodes(driver, "selects", "excludes", "plain", "tolerates", "other")
        assert found == ["n2", "n3", "", "n1", ""]


@virtual_time()
async def test_freed_capacity_goes_to_the_highest_priority_first(clock: VirtualClock) -> None:
    """persys.scheduling.priority orders what waits; among equals the older one is first, whatever
    its name and whenever it was looked at last."""
    async with running_cluster(clock, machine("n1", cpu=1000)) as driver:
        await driver.apply("holder", _wishing())
        waiting = {"z-old": "0", "low": "-5", "a-young": "0", "urgent": "100", "high": "7"}
        for name, priority in waiting.items():
            await driver.apply(name, _wishing(priority=priority))
            await driver.wait(seconds=2)
        order = []
        running = "holder"
        for _ in waiting:
            await driver.cluster.api().admission.delete_workload(running, force=False)
            await driver.wait(seconds=30)
            (running,) = [n for n in waiting if n not in order and await driver.node_of(n)]
            order.append(running)
        assert order == ["urgent", "high", "z-old", "a-young", "low"]


@virtual_time()
async def test_room_for_some_goes_to_the_first_of_them(clock: VirtualClock) -> None:
    """Forty wait, three fit: the three that are first in turn, though all are looked at at once."""
    async with running_cluster(clock, machine("n1", cpu=3000)) as driver:
        await driver.apply("holder", _wishing(cpu=3000))
        for number in range(40):
            await driver.apply(f"w{number:02}", _wishing(priority=str(number * 7 % 40)))
        await driver.cluster.api().admission.delete_workload("holder", force=False)
        await driver.wait(seconds=30)
        placed = [n for n in range(40) if await driver.node_of(f"w{n:02}")]
        assert sorted(n * 7 % 40 for n in placed) == [37, 38, 39]


@virtual_time()
async def test_what_is_too_large_for_its_turn_holds_up_nobody(clock: VirtualClock) -> None:
    """What fits is placed although something of a higher priority waits for more room."""
    async with running_cluster(clock, machine("n1", cpu=2000)) as driver:
        await driver.apply("holder", _wishing(cpu=2000))
        await driver.apply("large", _wishing(cpu=3000, priority="9"))
        await driver.apply("small", _wishing(cpu=500))
        await driver.cluster.api().admission.delete_workload("holder", force=False)
        await driver.wait(seconds=30)
        assert await _nodes(driver, "large", "small") == ["", "n1"]


@virtual_time()
async def test_a_label_that_comes_back_places_what_waits(clock: VirtualClock) -> None:
    """Work that runs stays while the label is gone; what waits for it needs nobody's help."""
    async with running_cluster(clock, machine("n1")) as driver:
        nodes = driver.cluster.api().nodes
        await nodes.label(NodeLabelChange(N1, "disk", "ssd"))
        await driver.apply("runs", _wishing(node_selector__disk="ssd"))
        await driver.wait(seconds=20)
        await nodes.label(NodeLabelChange(N1, "disk"))
        await driver.apply("waits", _wishing(node_selector__disk="ssd"))
        await driver.wait(minutes=2)
        assert await _nodes(driver, "runs", "waits") == ["n1", ""]
        await nodes.label(NodeLabelChange(N1, "disk", "ssd"))
        await driver.wait(seconds=20)
        assert [await driver.status(each) for each in ("runs", "waits")] == ["Running", "Running"]


@virtual_time()
async def test_what_was_moved_by_a_taint_follows_it(clock: VirtualClock) -> None:
    """NoExecute on one node and then on the other: the work goes there and comes back."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        nodes = driver.cluster.api().nodes
        await driver.apply("w", _wishing())
        await driver.wait(seconds=20)
        here = await driver.node_of("w")
        there = "n2" if here == "n1" else "n1"
        for left, other in ((here, there), (there, here)):
            mark = NodeTaintChange(NodeIntentChange(left), "bad", "", TaintEffect.NO_EXECUTE)
            await nodes.taint(mark)
            await driver.wait(seconds=40)
            assert (await driver.status("w"), await driver.node_of("w")) == ("Running", other)
            await nodes.untaint(mark)
        assert await driver.events("WorkloadFailed") == []


@virtual_time()
async def test_what_was_thrown_out_comes_back_with_its_node(clock: VirtualClock) -> None:
    """A forced drain leaves work without a node; the end of the drain alone gives it one again."""
    async with running_cluster(clock, machine("n1")) as driver:
        nodes = driver.cluster.api().nodes
        await driver.apply("w")
        await driver.wait(seconds=20)
        order = DrainNode(N1, deadline=timedelta(seconds=1), force=True)
        await nodes.drain(order)
        await driver.wait(minutes=2)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Pending", "")
        await nodes.undrain(N1)
        await driver.wait(seconds=20)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")


@virtual_time()
async def test_capacity_that_comes_back_places_what_waits(clock: VirtualClock) -> None:
    """A node that shrank takes nothing new, and takes it as soon as it has grown again."""
    async with running_cluster(clock, machine("n1", cpu=4000)) as driver:
        admission = driver.cluster.api().admission
        offer = driver.cluster.machines.model("n1").registration()
        pools = (StoragePool("root", "local", 200),)
        await admission.register_node(evolve(offer, capacity=capacity_of(500, 65_536, pools)))
        await driver.apply("w", _wishing(cpu=1000))
        await driver.wait(minutes=2)
        assert await driver.status("w") == "Pending"
        await admission.register_node(offer)
        await driver.wait(seconds=20)
        assert await driver.status("w") == "Running"

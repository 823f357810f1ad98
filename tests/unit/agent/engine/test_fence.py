from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.engine.fence import LeaseFence, is_exclusive
from persys_agent.engine.wishes import wish_from
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.observation import AgentState
from persys_core.model.workload import FailureKind
from persys_core.retry.failure import classify_failure
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from persys_proto.agent.v1 import agent_pb2 as wire
from tests.unit.agent.bench import Bench, Node, apply_message, volume

pytestmark = pytest.mark.slow

BEAT = timedelta(seconds=10)
LEASE = BEAT * 3
STOP_AFTER = timedelta(seconds=60)
RBD = volume("data", driver="ceph-rbd")


def fenced(clock: VirtualClock, folder: Path) -> Bench:
    """A machine whose node stops exclusive work."""
    bench = Bench(clock, folder)
    return bench.with_options(lambda options: evolve(options, stop_after=STOP_AFTER))


def heard(node: Node, clock: VirtualClock) -> None:
    node.assembly.fence.heard(clock.monotonic(), LEASE)


async def enforced(node: Node) -> None:
    if node.assembly.fence.is_cut_off:
        await node.assembly.fence.enforce(node.assembly.works)


@pytest.mark.parametrize(
    ("wanted", "exclusive"),
    [
        (wire.ManagedVolumeSpec(name="v", driver="ceph-rbd"), True),
        (wire.ManagedVolumeSpec(name="v", driver="nfs", access_mode="ReadWriteOnce"), True),
        (wire.ManagedVolumeSpec(name="v", driver="nfs", access_mode="ReadWriteMany"), False),
        (wire.ManagedVolumeSpec(name="v", driver="ceph-rbd", read_only=True), False),
        (wire.ManagedVolumeSpec(name="v", driver="local", access_mode="ReadWriteOnce"), False),
    ],
)
def test_exclusive_is_what_two_nodes_must_not_write_to(
    wanted: wire.ManagedVolumeSpec, exclusive: bool
) -> None:
    """As the scheduler says: shared modes, readers and local volumes are not."""
    assert is_exclusive(wish_from(apply_message(volumes=(wanted,))).spec) is exclusive


@virtual_time()
async def test_exclusive_work_stops_when_the_lease_is_long_over(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Lease and ``stop_after`` are waited for, not less; other work runs on."""
    bench = fenced(clock, tmp_path)
    async with bench.node() as node:
        heard(node, clock)
        await node.applied(apply_message("disk", volumes=(RBD,)))
        await node.applied(apply_message("free"))
        await clock.sleep(LEASE + STOP_AFTER - timedelta(seconds=1))
        await enforced(node)
        assert (await node.report("disk")).state is AgentState.RUNNING
        await clock.sleep(timedelta(seconds=1))
        await enforced(node)
        assert (await node.report("free")).state is AgentState.RUNNING
        report = await node.report("disk")
        assert report.state is AgentState.FAILED
        failure = classify_failure(report.failure_code, report.message, clock.now())
        assert failure.kind is FailureKind.INFRASTRUCTURE
        instance = bench.host.instance("disk")
        assert instance is not None
        assert instance.state is AgentState.STOPPED


@virtual_time()
async def test_it_starts_again_only_when_it_is_applied_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Neither a restart of the agent nor an acknowledged beat starts it: it may run elsewhere."""
    bench = fenced(clock, tmp_path)
    async with bench.node() as node:
        heard(node, clock)
        await node.applied(apply_message(volumes=(RBD,)))
        await clock.sleep(LEASE + STOP_AFTER)
        await enforced(node)
        await node.look()
        assert (await node.applied(apply_message(volumes=(RBD,)))).state is AgentState.FAILED
        heard(node, clock)
        await clock.sleep(timedelta(minutes=1))
        await node.look()
    async with bench.node() as node:
        heard(node, clock)
        await node.look()
        assert bench.host.started["w1"] == 1
        assert (await node.applied(apply_message(volumes=(RBD,)))).state is AgentState.RUNNING
        assert (bench.host.made["w1"], bench.host.started["w1"]) == (1, 2)


@virtual_time()
async def test_nothing_exclusive_starts_before_the_node_was_heard(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """After a restart of the machine the agent waits for an acknowledged beat."""
    bench = fenced(clock, tmp_path)
    async with bench.node() as node:
        heard(node, clock)
        await node.applied(apply_message(volumes=(RBD,), policy="always"))
    bench.host.end("w1", 137)
    async with bench.node() as node:
        await node.look()
        assert bench.host.started["w1"] == 1
        heard(node, clock)
        await node.look()
        assert bench.host.started["w1"] == 2


@virtual_time()
async def test_an_agent_that_nobody_hears_after_its_start_stops_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A restart does not begin a new lease."""
    bench = fenced(clock, tmp_path)
    async with bench.node() as node:
        heard(node, clock)
        await node.applied(apply_message(volumes=(RBD,)))
    async with bench.node() as node:
        await clock.sleep(STOP_AFTER)
        await enforced(node)
        assert (await node.report()).state is AgentState.FAILED


@virtual_time()
async def test_a_stop_that_fails_is_tried_again(clock: VirtualClock, tmp_path: Path) -> None:
    """Nothing is noted until the runtime says that it stopped."""
    bench = fenced(clock, tmp_path)
    async with bench.node() as node:
        heard(node, clock)
        await node.applied(apply_message(volumes=(RBD,)))
        await clock.sleep(LEASE + STOP_AFTER)
        bench.host.faults.fail("stop", RuntimeFailedError(FailureCode.RUNTIME_ERROR, "stuck"))
        await enforced(node)
        assert (await node.report()).state is AgentState.RUNNING
        await enforced(node)
        assert (await node.report()).state is AgentState.FAILED


class Memory:
    """Keeps the end of a lease as a file would."""

    def __init__(self, ends: float | None = None) -> None:
        self.ends = ends

    def recall(self) -> float | None:
        """What was kept."""
        return self.ends

    def keep(self, ends: float) -> None:
        """Keep it."""
        self.ends = ends


@virtual_time()
async def test_a_restarted_agent_goes_on_with_its_lease(clock: VirtualClock) -> None:
    """It stops exclusive work when its predecessor would have, not so long after its own start;
    where the machine was restarted that is at once, and where nothing was ever kept it counts from
    the start."""
    memory = Memory()
    LeaseFence(clock, STOP_AFTER, memory).heard(clock.monotonic(), LEASE)
    await clock.sleep(LEASE + STOP_AFTER - timedelta(seconds=1))
    restarted = LeaseFence(clock, STOP_AFTER, memory)
    seen = [restarted.is_cut_off]
    await clock.sleep(timedelta(seconds=1))
    seen.append(restarted.is_cut_off)
    assert seen == [False, True]
    assert LeaseFence(clock, STOP_AFTER, Memory(-math.inf)).is_cut_off
    assert not LeaseFence(clock, STOP_AFTER, Memory()).is_cut_off


@virtual_time()
async def test_a_beat_that_nobody_else_knows_of_is_none(clock: VirtualClock) -> None:
    """A scheduler that acknowledges and cannot tell the others renews nothing: the lease goes on
    to its end, and an agent that just started may start nothing exclusive."""
    fence, spec = LeaseFence(clock, STOP_AFTER), wish_from(apply_message(volumes=(RBD,))).spec
    fence.heard(clock.monotonic(), timedelta(0))
    assert not fence.may_start(spec)
    fence.heard(clock.monotonic(), LEASE)
    assert fence.may_start(spec)
    await clock.sleep(LEASE)
    fence.heard(clock.monotonic(), timedelta(0))
    await clock.sleep(STOP_AFTER)
    assert fence.is_cut_off


@virtual_time()
async def test_without_stop_after_nothing_is_stopped(clock: VirtualClock, tmp_path: Path) -> None:
    """The fence is off unless it is asked for."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(volumes=(RBD,)))
        await clock.sleep(timedelta(days=3))
        await enforced(node)
        assert (await node.report()).state is AgentState.RUNNING


@virtual_time()
async def test_a_task_that_takes_long_does_not_hold_the_fence_up(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """What runs is stopped although another revision is being pulled, and that starts nothing."""
    bench = fenced(clock, tmp_path)
    async with bench.node() as node:
        heard(node, clock)
        await node.applied(apply_message(volumes=(RBD,)))
        await clock.sleep(LEASE + STOP_AFTER - timedelta(seconds=1))
        bench.host.faults.delays["create"] = timedelta(minutes=20)
        await node.apply(apply_message(revision="r2", volumes=(RBD,)))
        await clock.sleep(timedelta(seconds=2))
        await enforced(node)
        instance = bench.host.instance("w1")
        assert instance is not None
        assert (instance.revision_id, instance.state) == ("r1", AgentState.STOPPED)
        await node.settled()
        assert "[LEASE_LOST]" in node.errors()[0]
        assert bench.host.started["w1"] == 1

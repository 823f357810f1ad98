from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from persys_core.model.observation import AgentState
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from persys_proto.agent.v1 import agent_pb2 as wire
from tests.unit.agent.bench import Bench, apply_message
from tests.unit.agent.engine.test_fence import LEASE, RBD, STOP_AFTER, enforced

pytestmark = pytest.mark.slow

PORT = 8080


def bound(port: int, message: wire.ApplyWorkloadRequest) -> wire.ApplyWorkloadRequest:
    """The same wish with a port of the host."""
    message.spec.container.ports.add(host_port=port, container_port=80)
    return message


@pytest.mark.parametrize("way", ["deleted", "stopped", "moved to another port"])
@virtual_time()
async def test_who_comes_early_waits_for_who_is_leaving(
    clock: VirtualClock, tmp_path: Path, way: str
) -> None:
    """A port that another workload of this node is about to let go of is no failure: its
    successor starts as soon as it is free."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(bound(PORT, apply_message("old")))
        bench.host.faults.delays.update(dict.fromkeys(("stop", "create"), timedelta(seconds=9)))
        match way:
            case "deleted":
                await node.delete("old")
            case "stopped":
                await node.apply(bound(PORT, apply_message("old", stopped=True)))
            case _:
                await node.apply(bound(PORT + 1, apply_message("old", revision="r2")))
        await clock.sleep(timedelta(seconds=0.1))
        bench.host.faults.mend()  # for whoever comes from now on
        report = await node.applied(bound(PORT, apply_message("new")))
        assert (report.state, report.failure_code) == (AgentState.RUNNING, "")
        assert node.errors() == []
        assert bench.host.started["new"] == 1


@virtual_time()
async def test_a_repair_waits_too(clock: VirtualClock, tmp_path: Path) -> None:
    """After the daemon's restart the one that is to go may have come back first."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(bound(PORT, apply_message("new", policy="always")))
        bench.host.end("new", 1)
        await node.applied(bound(PORT, apply_message("old")))
        bench.host.faults.delays["stop"] = timedelta(seconds=9)
        await node.delete("old")
        await node.look()
        assert (await node.report("new")).state is AgentState.RUNNING
        assert node.assembly.loop.counts.failed_repairs == 0


@virtual_time()
async def test_who_stays_keeps_the_port(clock: VirtualClock, tmp_path: Path) -> None:
    """A conflict with what is to run is told at once."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(bound(PORT, apply_message("old")))
        began = clock.monotonic()
        report = await node.applied(bound(PORT, apply_message("new")))
        assert clock.monotonic() - began < 1
        assert (report.state, report.failure_code) == (AgentState.FAILED, "PORT_BIND_CONFLICT")
        assert bench.host.faults.count("start", "new") == 1


@virtual_time()
async def test_patience_has_an_end(clock: VirtualClock, tmp_path: Path) -> None:
    """What cannot be ended holds nobody up for more than half a minute."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(bound(PORT, apply_message("old")))
        bench.host.faults.delays["stop"] = timedelta(minutes=5)
        await node.delete("old")
        began = clock.monotonic()
        await node.apply(bound(PORT, apply_message("new")))
        while (await node.report("new")).state is AgentState.PENDING:
            await clock.sleep(timedelta(seconds=0.5))
        assert 30 <= clock.monotonic() - began < 32
        assert (await node.report("new")).failure_code == "PORT_BIND_CONFLICT"


@pytest.mark.parametrize("is_freed", [True, False])
@virtual_time()
async def test_a_port_that_nobody_here_has_is_tried_a_little_longer(
    clock: VirtualClock, tmp_path: Path, is_freed: bool
) -> None:
    """Its container may have gone that moment; another program's port is a conflict for real."""
    bench = Bench(clock, tmp_path)
    bench.host.foreign_ports.add(PORT)
    async with bench.node() as node:
        await node.apply(bound(PORT, apply_message()))
        await clock.sleep(timedelta(seconds=1.2))
        assert (await node.report()).state is AgentState.PENDING
        if is_freed:
            bench.host.foreign_ports.clear()
        await node.settled()
        report = await node.report()
        assert report.state is (AgentState.RUNNING if is_freed else AgentState.FAILED)
        assert report.failure_code == ("" if is_freed else "PORT_BIND_CONFLICT")


@virtual_time()
async def test_who_waits_for_a_port_starts_nothing_after_the_cut_off(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """The wait may outlast the agent's right to start exclusive work, which is asked each time."""
    bench = Bench(clock, tmp_path).with_options(lambda it: evolve(it, stop_after=STOP_AFTER))
    async with bench.node() as node:
        node.assembly.fence.heard(clock.monotonic(), LEASE)
        await node.applied(bound(PORT, apply_message("old")))
        bench.host.faults.delays["stop"] = timedelta(seconds=20)
        await clock.sleep(LEASE + STOP_AFTER - timedelta(seconds=2))
        await node.delete("old")
        await node.apply(bound(PORT, apply_message("new", volumes=(RBD,))))
        for _ in range(20):
            await clock.sleep(timedelta(seconds=2))
            await enforced(node)
        assert node.assembly.fence.is_cut_off
        assert bench.host.started["new"] == 0

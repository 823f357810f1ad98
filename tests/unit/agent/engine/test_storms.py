"""Whatever is asked, whatever breaks and whenever the agent is killed: the last wish holds."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_agent.storage.port import StorageFailedError
from persys_core.model.observation import AgentState
from persys_core.sim.clock import VirtualClock
from persys_core.sim.loop import DEFAULT_START, run_virtual
from tests.unit.agent.bench import Bench, Node, apply_message, volume

_WISHES = ("r1", "r2", "stop", "delete")
_TROUBLE = ("down", "up", "crash", "lose", "fail create", "fail start", "fail attach", "busy")
_STEP = st.one_of(
    st.sampled_from(_WISHES), st.sampled_from(_TROUBLE), st.sampled_from(("wait", "look"))
)
_DATA = (volume("data"),)
_ERROR = RuntimeFailedError(FailureCode.RUNTIME_ERROR, "broken")


async def _wish(node: Node, wish: str) -> None:
    match wish:
        case "delete":
            await node.delete()
        case "stop":
            await node.apply(apply_message(revision="r1", stopped=True, volumes=_DATA))
        case revision:
            await node.apply(apply_message(revision=revision, policy="always", volumes=_DATA))


def _break(bench: Bench, trouble: str) -> None:
    instance = bench.host.instance("w1")
    match trouble:
        case "down" | "up":
            bench.host.is_up = trouble == "up"
        case "crash" if instance is not None and instance.state is AgentState.RUNNING:
            bench.host.end("w1", 1)
        case "lose" if instance is not None:
            bench.host.lose("w1")
        case "fail attach":
            bench.disks.faults.fail("attach", StorageFailedError("no"))
        case "busy":
            bench.disks.faults.fail("detach", StorageFailedError("busy"))
        case "fail create" | "fail start":
            bench.host.faults.fail(trouble.removeprefix("fail "), _ERROR)
        case _:
            return  # there is nothing to crash or to lose


async def _live(bench: Bench, steps: list[str], clock: VirtualClock) -> str:
    """One process of the agent, killed after its last step; returns the last wish."""
    last = ""
    bench.host.faults.delays = dict.fromkeys(("create", "start", "remove"), timedelta(seconds=1))
    async with bench.node() as node:
        for step in steps:
            if step in _WISHES:
                last = step
                await _wish(node, step)
            elif step == "look":
                await node.assembly.loop.pass_once()
            elif step == "wait":
                await clock.sleep(timedelta(seconds=1.5))
            else:
                _break(bench, step)
            assert bench.disks.faults.count("delete_data", "data") == 0
    return last


async def _calm(bench: Bench, wish: str, clock: VirtualClock) -> None:
    """Everything works again, and the scheduler says once more what it wants."""
    bench.host.is_up = True
    for faults in (bench.host.faults, bench.disks.faults):
        faults.mend()
    async with bench.node() as node:
        await node.settled()
        await _wish(node, wish)
        await node.settled()
        for _ in range(3):
            await clock.sleep(timedelta(minutes=10))
            await node.look()
        found = await node.assembly.works.board.report("w1")
        instance = bench.host.instance("w1")
        if wish == "delete":
            assert (found, instance, bench.disks.attached) == (None, None, set())
            return
        assert found is not None
        assert instance is not None
        wanted = AgentState.STOPPED if wish == "stop" else AgentState.RUNNING
        revision = "r1" if wish == "stop" else wish
        assert (found.state, found.revision_id) == (wanted, revision)
        assert (instance.state, instance.revision_id) == (wanted, revision)
        assert bench.disks.attached == {("data", "w1")}
        assert node.assembly.works.queue.errors == node.assembly.loop.counts.errors == 0


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(_STEP, max_size=8), min_size=1, max_size=3), st.sampled_from(_WISHES))
def test_the_last_wish_holds_in_the_end(lives: list[list[str]], wish: str) -> None:
    """Applies, stops and deletes in any order, kills, losses and faults: afterwards there is
    exactly what was wished last, and no data was ever removed."""

    async def scenario(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(clock, Path(folder))
            for steps in lives:
                await _live(bench, steps, clock)
            await _calm(bench, wish, clock)
            assert "data" in bench.disks.volumes or wish == "delete"

    run_virtual(scenario, start=DEFAULT_START)

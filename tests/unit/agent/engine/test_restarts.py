from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.state.records import TaskKind
from persys_core.model.observation import AgentState
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench, apply_message, volume

pytestmark = pytest.mark.slow

_WRITES = range(3, 16)


async def _until(died: asyncio.Event, done: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(died.wait())
    await asyncio.wait({waiting, done}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@pytest.mark.parametrize("die_at", _WRITES)
@virtual_time()
async def test_an_apply_survives_a_kill_at_any_write(
    clock: VirtualClock, tmp_path: Path, die_at: int
) -> None:
    """Killed before any of its writes, an accepted apply is carried on: one instance is made and
    started once (A18)."""
    bench = Bench(clock, tmp_path)
    async with bench.node(die_at=die_at) as node:
        accepting = asyncio.create_task(node.apply(apply_message(volumes=(volume("data"),))))
        await _until(node.file.died, accepting)
        was_accepted = accepting.done()
        working = asyncio.create_task(node.settled())
        await _until(node.file.died, working)
    async with bench.node() as node:
        await node.settled()
        if not was_accepted:
            assert await node.assembly.works.board.report("w1") is None
            return
        report = await node.report()
        assert report.state is AgentState.RUNNING
        assert (bench.host.made["w1"], bench.host.started["w1"]) == (1, 1)
        assert bench.disks.attached == {("data", "w1")}
        await clock.sleep(timedelta(minutes=1))
        await node.look()
        assert (bench.host.made["w1"], bench.host.started["w1"]) == (1, 1)


@pytest.mark.parametrize("die_at", _WRITES)
@virtual_time()
async def test_a_delete_survives_a_kill_at_any_write(
    clock: VirtualClock, tmp_path: Path, die_at: int
) -> None:
    """An accepted delete is carried on by the next process, data included where it was said."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(volumes=(volume("data"),)))
    async with bench.node(die_at=die_at) as node:
        accepting = asyncio.create_task(node.delete(volumes=True))
        await _until(node.file.died, accepting)
        was_accepted = accepting.done()
        working = asyncio.create_task(node.settled())
        await _until(node.file.died, working)
    async with bench.node() as node:
        await node.settled()
        if not was_accepted:
            assert (await node.report()).state is AgentState.RUNNING
            return
        assert await node.assembly.works.board.report("w1") is None
        assert bench.host.instance("w1") is None
        assert (bench.disks.attached, bench.disks.volumes) == (set(), set())


@virtual_time()
async def test_a_restarted_agent_restarts_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    """What ran before runs on as it was, and its history is still there (A18)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        for number in range(10):
            await node.apply(apply_message(f"w{number}"))
        await node.settled()
    async with bench.node() as node:
        for _ in range(3):
            await clock.sleep(timedelta(minutes=1))
            await node.look()
        assert set(bench.host.started.values()) == {1}
        assert len(node.assembly.works.queue.history.find(state="completed")) == 10
        assert {each.state for each in await node.assembly.works.board.reports()} == {
            AgentState.RUNNING
        }


@virtual_time()
async def test_a_job_that_ended_while_nobody_looked_is_not_run_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Killed right after the start of a job that is done by then: the carried-on apply leaves it
    so."""
    bench = Bench(clock, tmp_path)
    async with bench.node():
        pass
    for die_at in range(2, 12):
        name = f"job{die_at}"
        async with bench.node(die_at=die_at) as node:
            accepting = asyncio.create_task(node.apply(apply_message(name, image="exit0")))
            await _until(node.file.died, accepting)
            working = asyncio.create_task(node.settled())
            await _until(node.file.died, working)
        async with bench.node() as node:
            await node.settled()
            assert bench.host.started[name] <= 1


@pytest.mark.parametrize("image", ["nginx", "exit0"])
@pytest.mark.parametrize("die_at", range(2, 10))
@virtual_time()
async def test_a_second_run_survives_a_kill_at_any_write(
    clock: VirtualClock, tmp_path: Path, die_at: int, image: str
) -> None:
    """What rested with exit code 0 is wanted again: it is started once more, neither forgotten nor
    run twice."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(image=image))
        await node.applied(apply_message(image=image, stopped=True))
    await clock.sleep(timedelta(minutes=1))
    async with bench.node(die_at=die_at) as node:
        accepting = asyncio.create_task(node.apply(apply_message(image=image)))
        await _until(node.file.died, accepting)
        was_accepted = accepting.done()
        working = asyncio.create_task(node.settled())
        await _until(node.file.died, working)
    await clock.sleep(timedelta(minutes=1))
    async with bench.node() as node:
        await node.settled()
        await node.look()
        assert bench.host.started["w1"] == (2 if was_accepted else 1)


@virtual_time()
async def test_what_an_older_release_accepted_and_nobody_can_read_fails_visibly(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """The failure stands at the workload, whose last revision runs on, and no listing fails while
    such a task is open; a new apply puts it right."""
    bench = Bench(clock, tmp_path).with_options(lambda now: evolve(now, workers=1))
    async with bench.node() as node:
        await node.applied(apply_message())
        queue = node.assembly.works.queue
        await node.apply(apply_message("slow", image="slow"))  # the others wait for it
        for name in ("w1", "w2"):
            await queue.submit(TaskKind.APPLY, name, request='{"id":', revision_id="r2")
        listed = await node.assembly.works.board.reports()
        assert [each.workload_id for each in listed] == ["slow", "w1", "w2"]
        await node.settled()
        report = await node.report()
        assert (report.state, report.failure_code) == (AgentState.RUNNING, "CREATE_FAILED")
        assert "what was kept of it cannot be read" in report.metadata["last_error"]
        assert all("what was kept of it cannot be read" in each for each in node.errors())
        report = await node.applied(apply_message(revision="r2"))
        assert (report.revision_id, report.failure_code) == ("r2", "")
        assert queue.errors == 0

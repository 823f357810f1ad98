from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.observation import AgentState
from persys_core.reconcile.observe import says_gone_and_stopped
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench, apply_message

_BROKEN = RuntimeFailedError(FailureCode.RUNTIME_ERROR, "broken")


@virtual_time()
async def test_what_is_gone_is_made_anew(clock: VirtualClock, tmp_path: Path) -> None:
    """A workload that ran and that the runtime lost runs again without the scheduler."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.lose("w1")
        assert (await node.report()).state is AgentState.PENDING
        await node.look()
        assert (await node.report()).state is AgentState.RUNNING
        assert bench.host.made["w1"] == 2


@virtual_time()
async def test_a_loss_is_repaired_with_backoff(clock: VirtualClock, tmp_path: Path) -> None:
    """What is lost again and again is made less and less often, never in a hot loop (A16)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        for _ in range(600):
            await node.look()
            if bench.host.instance("w1") is not None:
                bench.host.lose("w1")
            await clock.sleep(timedelta(seconds=1))
        assert 5 <= bench.host.made["w1"] <= 12


@virtual_time()
async def test_a_repair_that_fails_is_told_and_tried_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """The failure stands beside the workload until the agent's own repair succeeds."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.lose("w1")
        bench.host.faults.fail("create", _BROKEN)
        await node.look()
        report = await node.report()
        assert (report.state, report.metadata["failure_reason"]) == (
            AgentState.FAILED,
            "RUNTIME_ERROR",
        )
        await clock.sleep(timedelta(minutes=1))
        await node.look()
        assert "last_error" not in (await node.report()).metadata


@virtual_time()
async def test_one_repair_that_takes_long_holds_nobody_up(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A slow creation of one workload delays neither the pass nor others (A16)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        for name in ("w1", "w2"):
            await node.applied(apply_message(name, image="slow" if name == "w1" else "nginx"))
        bench.host.lose("w1")
        bench.host.lose("w2")
        began = clock.monotonic()
        await node.assembly.loop.pass_once()
        assert clock.monotonic() == began
        await clock.sleep(timedelta(milliseconds=10))
        assert bench.host.instance("w2") is not None
        await node.assembly.loop.settled()
        assert bench.host.instance("w1") is not None


@pytest.mark.parametrize(
    ("policy", "code", "starts"),
    [
        ("no", 0, 1),
        ("on-failure", 0, 1),
        ("always", 0, 2),
        ("unless-stopped", 0, 2),
        ("no", 3, 1),
        ("on-failure", 3, 1),
        ("always", 3, 2),
        ("unless-stopped", 3, 2),
    ],
)
@virtual_time()
async def test_an_end_is_answered_by_the_restart_policy(
    clock: VirtualClock, tmp_path: Path, policy: str, code: int, starts: int
) -> None:
    """The agent starts again only what is to run for ever; the rest is the scheduler's (A8)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(policy=policy))
        bench.host.end("w1", code)
        for _ in range(3):
            await node.look()
        assert bench.host.started["w1"] == starts


@virtual_time()
async def test_what_should_rest_is_stopped(clock: VirtualClock, tmp_path: Path) -> None:
    """Somebody started it by hand; the wish is that it rests."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(stopped=True))
        runtime = next(iter(bench.backends().runtimes.values()))
        await runtime.start("w1")
        await node.look()
        assert (await node.report()).state is AgentState.STOPPED


@virtual_time()
async def test_a_stop_that_failed_is_tried_again(clock: VirtualClock, tmp_path: Path) -> None:
    """It is told as running with the error beside it, and stopped at the next look."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.faults.fail("stop", _BROKEN)
        report = await node.applied(apply_message(stopped=True))
        assert report.state is AgentState.RUNNING
        assert "[STOP_FAILED]" in report.metadata["last_error"]
        await node.look()
        healed = await node.report()
        assert healed.state is AgentState.STOPPED
        assert "last_error" not in healed.metadata


@virtual_time()
async def test_a_silent_runtime_changes_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    """Unknown is told, in words that nobody takes for absence; what runs is neither removed nor
    made again (A2)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.is_up = False
        for _ in range(20):
            await clock.sleep(timedelta(minutes=1))
            await node.look()
        (report,) = await node.assembly.works.board.reports()
        assert report == await node.report()
        assert report.state is AgentState.UNKNOWN
        assert "no such file" in report.metadata["runtime_error"]
        assert "no such" not in report.message
        assert not says_gone_and_stopped(report)
        bench.host.is_up = True
        await node.look()
        assert (await node.report()).state is AgentState.RUNNING
        assert (bench.host.made["w1"], bench.host.started["w1"]) == (1, 1)
        assert node.assembly.loop.counts.errors == 0


@virtual_time()
async def test_a_runtime_that_hangs_is_silent_after_its_deadline(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A listing ends although the runtime does not, so heartbeats stay in time (A23)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.faults.delays["instances"] = timedelta(hours=1)
        began = clock.monotonic()
        (report,) = await node.assembly.works.board.reports()
        assert report.state is AgentState.UNKNOWN
        assert clock.monotonic() - began == pytest.approx(10)


@virtual_time()
async def test_a_listing_asks_each_runtime_once(clock: VirtualClock, tmp_path: Path) -> None:
    """However many workloads there are (A23)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        for number in range(20):
            await node.apply(apply_message(f"w{number}"))
        await node.settled()
        bench.host.faults.journal.clear()
        assert len(await node.assembly.works.board.reports()) == 20
        assert [verb for verb, _ in bench.host.faults.journal] == ["instances", "instances"]


@virtual_time()
async def test_the_last_transition_is_when_the_state_changed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Looking does not move it (A6)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        began = clock.now()
        await node.applied(apply_message())
        await clock.sleep(timedelta(minutes=10))
        for _ in range(3):
            report = await node.report()
            assert report.reported_at is not None
            assert report.reported_at - began < timedelta(seconds=1)
        bench.host.end("w1", 1)
        changed = clock.now()
        await node.report()
        await clock.sleep(timedelta(minutes=10))
        assert (await node.report()).reported_at == changed


@virtual_time()
async def test_what_is_in_flight_shows_the_same_everywhere(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A listing, a status and a heartbeat tell of a long creation in the same words (A9)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        await node.apply(apply_message(revision="r2", image="slow"))
        await clock.sleep(timedelta(milliseconds=100))
        (listed,) = await node.assembly.works.board.reports()
        assert listed == await node.report()
        assert (listed.state, listed.revision_id) == (AgentState.PENDING, "r2")
        assert listed.metadata["task_status"] == "running"
        beat = await node.assembly.presence.beat(1)
        assert beat.reports == (listed,)
        await node.settled()
        assert (await node.report()).state is AgentState.RUNNING

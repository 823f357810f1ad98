from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.observation import AgentState
from persys_core.reconcile.observe import says_gone_and_stopped
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench, apply_message, volume

pytestmark = pytest.mark.slow

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
async def test_what_is_slow_to_start_is_left_alone(clock: VirtualClock, tmp_path: Path) -> None:
    """However long something starts, the agent neither restarts nor removes it (A5): how long is
    too long is the scheduler's to say."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.hold_up("w1")
        made, started = bench.host.made["w1"], bench.host.started["w1"]
        for _ in range(30):
            await node.look()
            await clock.sleep(timedelta(minutes=1))
        assert (await node.report()).state is AgentState.PENDING
        assert (bench.host.made["w1"], bench.host.started["w1"]) == (made, started)


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
        assert "container (dockerd) does not answer" in report.message
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
        assert clock.monotonic() - began == pytest.approx(5)


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
async def test_what_was_only_accepted_is_listed(clock: VirtualClock, tmp_path: Path) -> None:
    """From the moment of the answer on, before anything was begun (A9, A18)."""
    bench = Bench(clock, tmp_path)
    bench.with_options(lambda options: evolve(options, workers=1))
    async with bench.node() as node:
        for name in ("w1", "w2"):
            await node.apply(apply_message(name, image="slow"))
        reports = await node.assembly.works.board.reports()
        assert [each.workload_id for each in reports] == ["w1", "w2"]
        assert reports[1] == await node.report("w2")
        assert reports[1].metadata["task_status"] == "pending"


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


@pytest.mark.parametrize(("code", "state"), [(0, AgentState.STOPPED), (3, AgentState.FAILED)])
@virtual_time()
async def test_what_ended_and_was_cleared_away_is_not_run_again(
    clock: VirtualClock, tmp_path: Path, code: int, state: AgentState
) -> None:
    """Somebody pruned the containers: a job that is done stays done, over a restart too (A8)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.end("w1", code)
        await node.look()
    bench.host.lose("w1")
    async with bench.node() as node:
        for _ in range(3):
            await clock.sleep(timedelta(minutes=5))
            await node.look()
        assert bench.host.made["w1"] == 1
        report = await node.report()
        assert report.state is state
        assert report.metadata.get("container.exit_code") == ("0" if code == 0 else None)
        assert (await node.applied(apply_message())).state is AgentState.RUNNING


@virtual_time()
async def test_a_record_that_cannot_be_read_holds_up_no_other(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """It is told, left alone, and can be deleted; the others are kept running."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message("odd"))
        await node.applied(apply_message("well"))
        state = node.assembly.works.state
        row = state.get("odd")
        assert row is not None
        await state.save(evolve(row, request='{"spec": {}}'))
        bench.host.lose("well")
        await node.look()
        assert (await node.report("odd")).state is AgentState.RUNNING
        assert (await node.report("well")).state is AgentState.RUNNING
        await node.delete("odd")
        await node.settled()
        assert bench.host.instance("odd") is None
        assert node.assembly.loop.counts.errors == node.assembly.works.queue.errors == 0


@virtual_time()
async def test_two_agents_on_one_machine_leave_each_other_alone(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """One loses its state and begins anew: the other's ten workloads are untouched (A3)."""
    first, second = (Bench(clock, tmp_path / name) for name in ("first", "second"))
    second.host = first.host
    second.options = evolve(second.options, node_id="n2")
    for bench, prefix in ((first, "a"), (second, "b")):
        async with bench.node() as node:
            for number in range(10):
                await node.apply(apply_message(f"{prefix}{number}"))
            await node.settled()
    (tmp_path / "first" / "state.db").unlink()
    async with first.node() as node:
        await node.look()
        reports = await node.assembly.works.board.reports()
        assert [each.workload_id for each in reports] == [f"a{number}" for number in range(10)]
        for report in reports:
            await node.delete(report.workload_id)
        for number in range(10):
            await node.delete(f"b{number}")
        await node.settled()
    async with second.node() as node:
        await node.look()
        assert {each.state for each in await node.assembly.works.board.reports()} == {
            AgentState.RUNNING
        }
    assert all(first.host.started[f"b{number}"] == 1 for number in range(10))


@pytest.mark.parametrize(("root", "made"), [("/memory", 1), ("/elsewhere", 2)])
@virtual_time()
async def test_volumes_are_attached_again_before_a_start(
    clock: VirtualClock, tmp_path: Path, root: str, made: int
) -> None:
    """The machine went down, so nothing is mounted; where a device has another name afterwards, the
    instance is made anew."""
    bench = Bench(clock, tmp_path)
    wish = apply_message(policy="always", volumes=(volume("data"),))
    async with bench.node() as node:
        await node.applied(wish)
    bench.host.end("w1", 137)
    bench.disks.attached.clear()
    bench.disks.root = root
    async with bench.node() as node:
        await node.look()
        assert (await node.report()).state is AgentState.RUNNING
        assert bench.disks.attached == {("data", "w1")}
        assert bench.host.made["w1"] == made

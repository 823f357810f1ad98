from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import structlog
from attrs import define, evolve, field

from persys_agent.reporting.reporter import Reporter
from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.errors import PersysError
from persys_core.model.observation import AgentState
from persys_core.model.states import WorkloadType
from persys_core.ports.clock import Clock
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench, Node, apply_message

BEAT = timedelta(seconds=10)
MINUTE = timedelta(minutes=1)


class AwayError(PersysError):
    """Nobody answers."""


@define
class Scheduler:
    """Answers as it is told, and notes when it was called."""

    clock: Clock
    accepts: bool = True
    id_taken: bool = False
    answers_registrations: bool = True
    answers_beats: bool = True
    acknowledges: bool = True
    drains: bool = False
    knows: bool = True
    clock_is_ahead: timedelta = timedelta(0)
    confirmed: timedelta | None = None
    registered: list[tuple[float, RegisterNode]] = field(factory=list)
    beats: list[tuple[float, Heartbeat]] = field(factory=list)

    async def register(self, node: RegisterNode) -> RegisterAnswer:
        self.registered.append((self.clock.monotonic(), node))
        if not self.answers_registrations:
            raise AwayError("connection refused")
        self.knows = True
        accepted, ends_at = self.accepts and not self.id_taken, self.clock.now() + BEAT * 3
        return RegisterAnswer(accepted, "full", BEAT, ends_at, id_taken=self.id_taken)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        self.beats.append((self.clock.monotonic(), beat))
        if not self.answers_beats:
            raise AwayError("connection refused")
        return HeartbeatAnswer(
            self.acknowledges,
            self.drains,
            self.clock.now() + self.clock_is_ahead + BEAT * 3,
            known=self.knows,
            confirmed=self.confirmed,
        )


@asynccontextmanager
async def reporting(node: Node, scheduler: Scheduler, seed: int = 1) -> AsyncIterator[Reporter]:
    reporter = node.assembly.reporter(scheduler, random.Random(seed))
    running = asyncio.create_task(reporter.run())
    try:
        yield reporter
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@virtual_time()
async def test_a_node_registers_and_beats(clock: VirtualClock, tmp_path: Path) -> None:
    """Beats have one boot id, growing numbers and the reports with their revisions."""
    scheduler = Scheduler(clock)
    async with Bench(clock, tmp_path).node() as node, reporting(node, scheduler):
        await node.applied(apply_message())
        await clock.sleep(MINUTE)
    beats = [beat for _, beat in scheduler.beats]
    assert [beat.sequence for beat in beats] == list(range(1, len(beats) + 1))
    assert len({beat.boot_id for beat in beats}) == 1
    assert len(beats) in (6, 7)
    (report,) = beats[-1].reports
    assert (report.revision_id, report.state) == ("r1", AgentState.RUNNING)
    ((_, node_told),) = scheduler.registered
    assert node_told.workload_types == {WorkloadType.CONTAINER, WorkloadType.VM}


@virtual_time()
async def test_each_start_has_a_boot_id_of_its_own(clock: VirtualClock, tmp_path: Path) -> None:
    """So that late beats of an older process are told apart."""
    bench, seen = Bench(clock, tmp_path), set()
    for _ in range(2):
        async with bench.node() as node:
            seen.add((await node.assembly.presence.beat(1)).boot_id)
    assert len(seen) == 2


@virtual_time()
async def test_beats_that_fail_make_no_hot_loop(clock: VirtualClock, tmp_path: Path) -> None:
    """Registrations that are accepted before beats that fail come less and less often (A20)."""
    scheduler = Scheduler(clock, answers_beats=False)
    async with Bench(clock, tmp_path).node() as node, reporting(node, scheduler):
        await clock.sleep(MINUTE * 10)
    assert 15 <= len(scheduler.registered) <= 50
    waits = [b - a for (a, _), (b, _) in pairwise(scheduler.registered)]
    assert min(waits) >= 0.5
    assert 15 <= max(waits) <= 45


@virtual_time()
async def test_nodes_do_not_come_back_in_step(clock: VirtualClock, tmp_path: Path) -> None:
    """Waits have jitter: a scheduler that restarts does not meet a herd (A21)."""
    told = []
    for seed in (1, 2):
        scheduler = Scheduler(clock, answers_registrations=False)
        began = clock.monotonic()
        (tmp_path / str(seed)).mkdir()
        bench = Bench(clock, tmp_path / str(seed))
        async with bench.node() as node, reporting(node, scheduler, seed):
            await clock.sleep(MINUTE)
        told.append([at - began for at, _ in scheduler.registered])
    assert told[0][1:] != told[1][1:]


@virtual_time()
async def test_a_scheduler_that_restarts_is_ridden_out(clock: VirtualClock, tmp_path: Path) -> None:
    """The node is there again soon after, with everything it runs."""
    scheduler = Scheduler(clock)
    async with Bench(clock, tmp_path).node() as node, reporting(node, scheduler) as reporter:
        await node.applied(apply_message())
        await clock.sleep(MINUTE)
        scheduler.answers_beats = scheduler.answers_registrations = False
        await clock.sleep(MINUTE * 5)
        assert reporter.problem == "connection refused"
        scheduler.answers_beats = scheduler.answers_registrations = True
        scheduler.beats.clear()
        await clock.sleep(timedelta(seconds=45))
        assert reporter.problem == ""
        assert len(scheduler.beats) >= 1
        assert len(scheduler.beats[-1][1].reports) == 1


@virtual_time()
async def test_an_unknown_node_registers_again(clock: VirtualClock, tmp_path: Path) -> None:
    """A scheduler that lost it gets to know it within seconds."""
    scheduler = Scheduler(clock)
    async with Bench(clock, tmp_path).node() as node, reporting(node, scheduler) as reporter:
        await clock.sleep(MINUTE)
        scheduler.knows = False
        await clock.sleep(BEAT * 2)
        assert reporter.registrations == 2
        assert reporter.problem == ""


@virtual_time()
async def test_a_refused_registration_waits_and_says_why(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """It is tried again, and nothing beats meanwhile."""
    scheduler = Scheduler(clock, accepts=False)
    async with Bench(clock, tmp_path).node() as node, reporting(node, scheduler) as reporter:
        await clock.sleep(MINUTE)
        assert reporter.problem == "registration refused: full"
        assert scheduler.beats == []
        assert 3 <= len(scheduler.registered) <= 12


@virtual_time()
async def test_draining_is_obeyed_while_it_is_said(clock: VirtualClock, tmp_path: Path) -> None:
    """Nothing new comes in, what is here may be applied again and runs on (A21)."""
    scheduler = Scheduler(clock, drains=True)
    async with Bench(clock, tmp_path).node() as node, reporting(node, scheduler):
        await node.applied(apply_message())
        await clock.sleep(MINUTE)
        gate = node.assembly.gate
        assert "[ADMISSION_REFUSED]" in gate.refuse_new("w2")
        assert gate.refuse_new("w1") == ""
        assert (await node.report()).state is AgentState.RUNNING
        scheduler.drains = False
        await clock.sleep(BEAT)
        assert gate.refuse_new("w2") == ""


@virtual_time()
async def test_a_beat_that_is_not_acknowledged_does_not_renew(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """It counts as not heard, so exclusive work stops in the end (A21)."""
    bench = Bench(clock, tmp_path).with_options(lambda options: evolve(options, stop_after=MINUTE))
    scheduler = Scheduler(clock)
    async with bench.node() as node, reporting(node, scheduler) as reporter:
        await clock.sleep(MINUTE * 3)
        was_cut_off = node.assembly.fence.is_cut_off
        scheduler.acknowledges = False
        await clock.sleep(MINUTE * 3)
        assert (was_cut_off, node.assembly.fence.is_cut_off) == (False, True)
        assert "did not acknowledge" in reporter.problem


@virtual_time()
async def test_a_node_whose_id_another_agent_has(clock: VirtualClock, tmp_path: Path) -> None:
    """It says so once, is not healthy, goes on trying, and is well as soon as it is let in."""
    scheduler = Scheduler(clock, id_taken=True)
    async with Bench(clock, tmp_path).node() as node, reporting(node, scheduler):
        with structlog.testing.capture_logs() as told:
            await clock.sleep(MINUTE * 5)
        ailment = node.assembly.health.ailment()
        scheduler.id_taken = False
        await clock.sleep(MINUTE)
        assert not node.assembly.health.ailment()
    assert [each["event"] for each in told] == ["another agent has this node's id"]
    assert ailment == "registration refused: full"
    assert {node.boot_id for _, node in scheduler.registered} == {scheduler.beats[0][1].boot_id}
    assert len(scheduler.registered) > 10


@virtual_time()
async def test_a_scheduler_that_takes_nobody_in_makes_no_node_ill(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Whoever watches the process must not restart it for that."""
    scheduler = Scheduler(clock, accepts=False)
    async with Bench(clock, tmp_path).node() as node, reporting(node, scheduler) as reporter:
        await clock.sleep(MINUTE)
        assert reporter.problem == "registration refused: full"
        assert not node.assembly.health.ailment()


@virtual_time()
async def test_a_runtime_that_goes_away_is_no_longer_promised(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """What the node can do is asked again, and a change is registered at the next beat."""
    bench, scheduler = Bench(clock, tmp_path), Scheduler(clock)
    async with bench.node() as node, reporting(node, scheduler):
        detecting = asyncio.create_task(node.assembly.detector.run())
        await clock.sleep(MINUTE / 2)
        bench.host.is_up = False
        await clock.sleep(MINUTE * 2)
        assert scheduler.registered[-1][1].workload_types == frozenset()
        bench.host.is_up = True
        await clock.sleep(MINUTE * 2)
        assert len(scheduler.registered[-1][1].workload_types) == 2
        assert len(scheduler.registered) == 3
        detecting.cancel()


@virtual_time()
async def test_a_beat_costs_one_question_per_runtime(clock: VirtualClock, tmp_path: Path) -> None:
    """Usage is what was measured before: no sampling in a beat (A23, A27)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        for number in range(5):
            await node.applied(apply_message(f"w{number}"))
        await node.assembly.collector.measure()
        bench.host.faults.journal.clear()
        began = clock.monotonic()
        beat = await node.assembly.presence.beat(1)
        assert clock.monotonic() == began
        assert len(beat.workload_usage) == 5
        assert beat.usage is not None
        assert beat.usage.used.memory_mb > 0
        assert [verb for verb, _ in bench.host.faults.journal] == ["instances", "instances"]


@pytest.mark.parametrize(
    ("ahead", "confirmed", "lasts"),
    [
        (timedelta(0), None, BEAT * 3),
        (timedelta(days=1), None, BEAT * 3),
        (timedelta(days=-1), None, BEAT),
        (timedelta(days=1), timedelta(seconds=7), timedelta(seconds=7)),
        (timedelta(0), timedelta(0), timedelta(0)),
    ],
)
def test_a_lease_is_believed_as_far_as_it_is_certain(
    ahead: timedelta, confirmed: timedelta | None, lasts: timedelta, tmp_path: Path
) -> None:
    """What every replica grants counts; a scheduler that does not say it is believed between one
    and three intervals, however wrong its clock, from when the beat was sent."""

    @virtual_time()
    async def body(clock: VirtualClock) -> None:
        stop_after = timedelta(seconds=20)
        bench = Bench(clock, tmp_path).with_options(lambda o: evolve(o, stop_after=stop_after))
        scheduler = Scheduler(clock, clock_is_ahead=ahead, confirmed=confirmed)
        async with bench.node() as node, reporting(node, scheduler):
            await clock.sleep(timedelta(seconds=1))
            scheduler.answers_beats = False
            sent_at = scheduler.beats[0][0]
            ends = sent_at + lasts.total_seconds() + stop_after.total_seconds()
            await clock.sleep(timedelta(seconds=ends - 0.5 - clock.monotonic()))
            seen = [node.assembly.fence.is_cut_off]
            await clock.sleep(timedelta(seconds=1))
            assert [*seen, node.assembly.fence.is_cut_off] == [False, True]

    body()

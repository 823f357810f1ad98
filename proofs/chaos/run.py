"""One run of chaos: the stage, work and faults on it, and what the observer makes of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import define, field, frozen

from persys_core.model.workload import Workload
from persys_core.sim.agent_journal import Happening
from persys_core.sim.invariants import Rule
from proofs.chaos.clients import Client, Load, Outcome, Tally
from proofs.chaos.convergence import unfinished
from proofs.chaos.faults import FaultKind, Faults, plan
from proofs.chaos.rules_machines import Bounds
from proofs.chaos.stage import Size, Stage, staged
from proofs.chaos.violations import Violation

__all__ = ["Course", "Report", "run"]

LOOK_SECONDS = 0.05


@frozen
class Course:
    """What a run is like. ``bound``: how long everything may take to converge after the faults."""

    seed: int = 1
    seconds: float = 600.0
    every: float = 3.0
    bound: float = 60.0
    size: Size = Size()
    load: Load = field(factory=Load)


@define
class Report:
    """What came of a run."""

    course: Course
    violations: list[Violation]
    faults: Counter[FaultKind]
    left_out: int
    on_leader: int
    tally: Tally
    commits: int
    calls: int
    refused_calls: int
    leaders: int
    longest_without_leader: float
    undecided: int
    workloads: int
    converged_after: float | None

    def figures(self) -> Iterator[tuple[str, float, str]]:
        """Names, values and units."""
        yield "seconds", self.course.seconds, "s"
        for kind in FaultKind:
            yield f"faults_{kind}", self.faults[kind], "count"
        yield "faults", self.faults.total(), "count"
        yield "faults_on_the_leader", self.on_leader, "count"
        yield "faults_left_out", self.left_out, "count"
        for outcome in Outcome:
            name = outcome.replace(" ", "_")
            yield f"requests_{name}", self.tally.answers[outcome], "count"
        yield "commits", self.commits, "revisions"
        yield "agent_calls", self.calls, "count"
        yield "agent_calls_of_an_older_epoch_refused", self.refused_calls, "count"
        yield "leaders", self.leaders, "count"
        yield "longest_without_a_leader", self.longest_without_leader, "s"
        yield "longest_without_an_accepted_apply", self.tally.longest_without, "s"
        yield "workloads_at_the_end", self.workloads, "count"
        yield "workloads_with_two_right_states", self.undecided, "count"
        if self.converged_after is not None:
            yield "converged_after", self.converged_after, "s"
        yield "violations", len(self.violations), "count"


@define
class _Vacancy:
    """The longest time in which nobody who can act leads by etcd's keys."""

    longest: float = 0.0

    async def watch(self, stage: Stage) -> None:
        """Look again and again."""
        since = time.monotonic()
        while True:
            leader = stage.leader
            if leader is not None and leader.is_up and not leader.is_parted:
                since = time.monotonic()
            self.longest = max(self.longest, time.monotonic() - since)
            await asyncio.sleep(LOOK_SECONDS)


async def run(course: Course, folder: Path, told: Callable[[str], None]) -> Report:
    """Carry a course out. The stage is always ended."""
    async with staged(folder, course.size, seed=course.seed) as (stage, machines):
        told("everything is there")
        tally, vacancy, stop = Tally(), _Vacancy(), asyncio.Event()
        faults = Faults(stage, machines, told)
        clients = [
            Client.create(
                number, stage.addresses, course.load, stage.observer.promises, tally, course.seed
            )
            for number in range(course.load.clients)
        ]
        watching = asyncio.create_task(vacancy.watch(stage))
        working = [asyncio.create_task(each.run(stop)) for each in clients]
        try:
            await faults.run(list(plan(course.seed, course.seconds, course.size, course.every)))
            stop.set()
            told("the faults are over")
            late = await _converges(stage, working, course)
        finally:
            for task in (watching, *working):
                task.cancel()
            await asyncio.gather(watching, *working, return_exceptions=True)
        return _report(course, stage, faults, tally, vacancy, late)


async def _converges(
    stage: Stage, working: list[asyncio.Task[None]], course: Course
) -> float | list[Violation]:
    """How long it took until all is as it should be, or what was not in time."""
    observer, began = stage.observer, time.monotonic()
    left: list[tuple[str, str]] = []
    while time.monotonic() - began < course.bound:
        for task in working:
            if task.done():
                task.result()
        open_ = [task for task in working if not task.done()]
        left = list(unfinished(observer.picture, observer.timelines, observer.promises))
        if not left and not open_:
            return time.monotonic() - began
        await asyncio.sleep(LOOK_SECONDS * 4)
    found = [
        Violation(Rule.LIVENESS, wrong, observer.now(), 0, (workload_id,))
        for workload_id, wrong in left
    ]
    if not found:
        found = [Violation(Rule.LIVENESS, "a client has no answer yet", observer.now())]
    return found


def _report(
    course: Course,
    stage: Stage,
    faults: Faults,
    tally: Tally,
    vacancy: _Vacancy,
    late: float | list[Violation],
) -> Report:
    observer = stage.observer
    bounds = Bounds.of_seconds(course.size.grace)
    violations = [*observer.verdict(bounds), *tally.violations]
    if isinstance(late, list):
        violations += late
    return Report(
        course=course,
        violations=violations,
        faults=faults.done,
        left_out=faults.left_out.total(),
        on_leader=faults.on_leader,
        tally=tally,
        commits=observer.steps,
        calls=len(observer.calls(Happening.APPLY, Happening.DELETE)),
        refused_calls=len(observer.timelines.refusals),
        leaders=len(observer.leaders),
        longest_without_leader=vacancy.longest,
        undecided=observer.promises.undecided(),
        workloads=sum(1 for _ in observer.picture.values(Workload)),
        converged_after=None if isinstance(late, list) else late,
    )

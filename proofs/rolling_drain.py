"""All nodes drained in turn while work comes and goes: `python -m proofs.rolling_drain`.

The scheduler is the real one, the machines are agent models, and time is virtual. Each node is
ordered to drain, waited for, and taken back; users apply and delete all the while. Decided here:
the load and the course. What must hold is decided in ``rolling_drain_judge``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from attrs import evolve, frozen

from persys_core.control.requests import ApplyWorkload, DrainNode, NodeIntentChange
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    ManagedVolume,
    SpecBody,
    VmSpec,
    WorkloadSpec,
)
from persys_core.model.states import WorkloadType
from persys_core.ports.observer import Metric
from persys_core.sim.agent_settings import AgentSettings, existing_agent, our_agent
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import SimulatedCluster
from persys_core.sim.loop import run_virtual
from persys_core.sim.rng import stream
from proofs.copies import copies_of
from proofs.rolling_drain_judge import Asked, Bounds, Drained, Verdict, judge

__all__ = ["Outcome", "Plan", "run"]

LIMIT_PER_NODE = timedelta(minutes=5)
LOOK_EVERY = timedelta(seconds=1)


@frozen
class Plan:
    """The size of a run. ``every``: one arrival and one deletion in this time, on average."""

    nodes: int = 200
    workloads: int = 2000
    every: timedelta = timedelta(seconds=1)
    seed: int = 1


@frozen
class Outcome:
    """The verdict, and how large the run was."""

    plan: Plan
    verdict: Verdict
    bounds: Bounds
    arrived: int
    deleted: int
    longest_drain: timedelta
    virtual: timedelta
    bugs: int

    def figures(self) -> Iterator[tuple[str, float | int, str]]:
        """Name, value and unit of everything that was measured."""
        verdict = self.verdict
        yield "nodes", self.plan.nodes, "count"
        yield "workloads_at_start", self.plan.workloads, "count"
        yield "workloads_arrived", self.arrived, "count"
        yield "workloads_deleted", self.deleted, "count"
        yield "moves", verdict.moves, "count"
        yield "longest_gap_start_first", verdict.gap_start_first.total_seconds(), "s"
        yield "longest_gap_stop_first", verdict.gap_stop_first.total_seconds(), "s"
        yield "bound_gap_stop_first", self.bounds.gap.total_seconds(), "s"
        yield "longest_overlap_of_a_move", verdict.overlap.total_seconds(), "s"
        yield "bound_overlap_of_a_move", self.bounds.overlap.total_seconds(), "s"
        yield "longest_start", verdict.longest_start.total_seconds(), "s"
        yield "longest_drain", self.longest_drain.total_seconds(), "s"
        yield "duplicates", verdict.duplicates, "count"
        yield "lost", verdict.lost, "count"
        yield "bugs", self.bugs, "count"
        yield "violations", len(verdict.violations), "count"
        yield "virtual_seconds", self.virtual.total_seconds(), "s"


def run(plan: Plan) -> Outcome:
    """Perform ``plan`` in virtual time and judge it."""
    return run_virtual(lambda clock: _Course(plan, clock).perform())


class _Course:
    """One performance: people, an operator and a cluster."""

    def __init__(self, plan: Plan, clock: VirtualClock) -> None:
        self._plan = plan
        self._clock = clock
        self._rng = stream(plan.seed, "rolling drain")
        self._cluster = SimulatedCluster(clock, seed=plan.seed)
        self._asked: dict[str, Asked] = {}
        self._living: list[str] = []
        self._drains: list[Drained] = []
        self._late: list[str] = []

    async def perform(self) -> Outcome:
        """The whole course, and the verdict."""
        for _ in range(2):
            await self._cluster.start_replica()
        names = [f"n{number:03}" for number in range(self._plan.nodes)]
        for name in names:
            self._cluster.add_machine(_machine(name))
        await self._clock.sleep(timedelta(seconds=20))
        for _ in range(self._plan.workloads):
            await self._apply()
        await self._clock.sleep(timedelta(seconds=60))
        people = asyncio.create_task(self._people())
        for name in names:
            await self._drain(name)
        people.cancel()
        bounds = Bounds.of(_machine(""), self._cluster.config.timing)
        await self._clock.sleep(bounds.settle + LOOK_EVERY)
        return await self._judged(bounds)

    # People

    async def _people(self) -> None:
        """Somebody applies and somebody deletes, again and again."""
        mean = self._plan.every.total_seconds()
        while True:
            await self._clock.sleep(timedelta(seconds=self._rng.uniform(0, 2 * mean)))
            await self._apply()
            await self._delete()

    async def _apply(self) -> None:
        name = f"w{len(self._asked):05}"
        spec = _spec(self._rng)
        self._asked[name] = Asked(name, self._clock.now(), exclusive=bool(spec.managed_volumes))
        await self._cluster.api().admission.apply_workload(ApplyWorkload(name, spec))
        self._living.append(name)

    async def _delete(self) -> None:
        name = self._living.pop(self._rng.randrange(len(self._living)))
        self._asked[name] = evolve(self._asked[name], deleted_at=self._clock.now())
        await self._cluster.api().admission.delete_workload(name, force=False)

    # The operator

    async def _drain(self, node_id: str) -> None:
        nodes, change = self._cluster.api().nodes, NodeIntentChange(node_id, "new kernel")
        ordered = self._clock.now()
        await nodes.drain(DrainNode(change))
        while True:
            await self._clock.sleep(LOOK_EVERY)
            progress = await nodes.progress(node_id)
            if not progress.remaining and not progress.moving:
                break
            if self._clock.now() - ordered > LIMIT_PER_NODE:
                self._late.append(f"{node_id} was not empty after {LIMIT_PER_NODE}: {progress}")
                break
        empty = self._clock.now()
        await self._clock.sleep(timedelta(seconds=5))
        self._drains.append(Drained(node_id, ordered, empty, self._clock.now()))
        await nodes.undrain(change)

    # The end

    async def _judged(self, bounds: Bounds) -> Outcome:
        now = self._clock.now()
        for model in self._cluster.machines:
            model.catch_up(now)
        journals = ((m.settings.node_id, m.journal.entries) for m in self._cluster.machines)
        asked = list(self._asked.values())
        verdict = judge(asked, self._drains, copies_of(journals), bounds, now)
        verdict.violations.extend(self._late)
        verdict.violations.extend(await self._forgotten())
        await self._cluster.stop()
        return Outcome(
            self._plan,
            verdict,
            bounds,
            arrived=len(asked) - self._plan.workloads,
            deleted=sum(each.deleted_at is not None for each in asked),
            longest_drain=max(turn.empty_at - turn.ordered_at for turn in self._drains),
            virtual=now - _start(asked),
            bugs=sum(replica.observer.count(Metric.BUGS) for replica in self._cluster.replicas),
        )

    async def _forgotten(self) -> list[str]:
        """What is asked for and shown to nobody, and the other way round."""
        shown, _ = await self._cluster.api().queries.list_workloads()
        wrong = {view.workload.id for view in shown} ^ set(self._living)
        return [f"{name} is recorded otherwise than it was asked for" for name in sorted(wrong)]


def _machine(node_id: str) -> AgentSettings:
    """Half of the machines have an agent of the field's, half of them one of ours."""
    make = existing_agent if node_id[-1:] in "02468" else our_agent
    return evolve(
        make(node_id),
        endpoint=f"{node_id}:50051",
        storage_drivers=frozenset({"local", "ceph-rbd"}),
    )


def _spec(rng: random.Random) -> WorkloadSpec:
    """A sound workload; what fails or ends by itself would have gaps of its own."""
    kind, body = rng.choices(
        (
            (WorkloadType.CONTAINER, ContainerSpec("web")),
            (WorkloadType.CONTAINER, _exclusive(rng)),
            (WorkloadType.COMPOSE, ComposeSpec("services:\n  app:\n    image: web\n")),
            (WorkloadType.VM, VmSpec(1, 512, os_image="web")),
        ),
        weights=(70, 10, 15, 5),
    )[0]
    cpu = rng.choice((250, 500, 1000, 1000, 2000))
    # Machines are tied to their node by their data, unless they say that they have none.
    resources = Resources.of(cpu_millicores=cpu, memory_mb=1024)
    return WorkloadSpec(kind, resources, body, {"persys.scheduling.persistence_class": "ephemeral"})


def _exclusive(rng: random.Random) -> SpecBody:
    """A container with a volume that one copy at a time may write to, so it is stopped first."""
    name = f"data-{rng.getrandbits(48):012x}"
    volume = ManagedVolume(name, "ceph-rbd", 1, "ReadWriteOnce", mount_path="/data")
    return ContainerSpec("web", managed_volumes=(volume,))


def _start(asked: Sequence[Asked]) -> datetime:
    return min(each.at for each in asked)


def _plan(arguments: Sequence[str] | None) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m proofs.rolling_drain")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--workloads", type=int, default=2000)
    parser.add_argument("--every", type=float, default=1.0, help="seconds per arrival and deletion")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    every = timedelta(seconds=options.every)
    return Plan(options.nodes, options.workloads, every, options.seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the figures and what did not hold; the exit code is 1 where anything did not."""
    began = time.perf_counter()
    outcome = run(_plan(arguments))
    for name, value, unit in outcome.figures():
        print(f"rolling_drain_{name} {value:g} {unit}")
    print(f"rolling_drain_real_seconds {time.perf_counter() - began:.1f} s")
    for sentence in outcome.verdict.violations:
        print(f"violated: {sentence}", file=sys.stderr)
    return 1 if outcome.verdict.violations or outcome.bugs else 0


if __name__ == "__main__":
    sys.exit(main())

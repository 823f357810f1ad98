"""Runs one scenario from its start to a quiet end, and judges it all the way.

Decided here: the course of a run. Replicas and machines start; people and faults work for the
given time; then everything is mended and must settle (rule 8); then a minute must pass in which
nothing is written (rule 9). The first violation ends the run with ``SimulationError``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.states import OperatingMode
from persys_core.model.workload import Workload
from persys_core.ports.cluster_store import ClusterStore, Kind
from persys_core.ports.observer import Metric
from persys_core.reconcile.transitions import MESSAGE_REFRESH
from persys_core.sim.clock import VirtualClock
from persys_core.sim.disruptor import Disruptor
from persys_core.sim.invariants import Finding, Rule
from persys_core.sim.invariants_liveness import Overdue, is_restless, may_end
from persys_core.sim.invariants_orphans import orphans_left
from persys_core.sim.loop import run_virtual
from persys_core.sim.report import Report, SimulationError
from persys_core.sim.scenario import Scenario, plan_faults
from persys_core.sim.stage import Stage

__all__ = ["Run", "run_scenario"]

CHECK_INTERVAL = timedelta(minutes=1)
READ_INTERVAL = timedelta(seconds=5)
RETURN_LIMIT = timedelta(minutes=4)
SETTLE_LIMIT = timedelta(minutes=60)
_INTERVALS = 3


def run_scenario(
    scenario: Scenario,
    *,
    until: timedelta | None = None,
    traced: Iterable[str] = (),
    sink: Callable[[str], None] | None = None,
    spoil_store: Callable[[ClusterStore], ClusterStore] = lambda store: store,
    spoil: Callable[[Stage], None] = lambda stage: None,
) -> Report:
    """Run ``scenario`` in virtual time.

    ``until``: end there, without settling. ``traced``, ``sink``: lines of history about these ids
    go to ``sink`` as they are written. ``spoil_store`` and ``spoil`` (called before anything
    starts) let tests break something. Raises SimulationError.
    """

    async def body(clock: VirtualClock) -> Report:
        stage = Stage(scenario, clock, traced=traced, sink=sink, spoil_store=spoil_store)
        return await Run(stage, spoil).perform(until)

    return run_virtual(body)


class Run:
    """One performance of a scenario on its stage."""

    def __init__(self, stage: Stage, spoil: Callable[[Stage], None]) -> None:
        self._stage = stage
        self._spoil = spoil
        self._clock = stage.clock
        self._watcher = stage.watcher
        self._disruptor = Disruptor(stage)
        self._settled_after = timedelta(0)
        self._tasks: list[asyncio.Task[None]] = []

    async def perform(self, until: timedelta | None) -> Report:
        """The whole course; SimulationError at the first violation."""
        asyncio.get_running_loop().set_exception_handler(self._on_stray_exception)
        course = asyncio.get_running_loop().create_task(self._course(until))
        found = asyncio.get_running_loop().create_task(self._watcher.found.wait())
        try:
            await asyncio.wait((course, found), return_when=asyncio.FIRST_COMPLETED)
            if self._watcher.finding is None:
                await course
            self._raise_found()
        finally:
            for task in (course, found, *self._tasks):
                task.cancel()
            await asyncio.gather(course, found, *self._tasks, return_exceptions=True)
            await self._stage.close()
        return self._report()

    def _raise_found(self) -> None:
        finding = self._watcher.finding
        if finding is not None:
            raise SimulationError(
                self._stage.scenario,
                finding,
                self._clock.monotonic(),
                self._stage.history.tail(finding.subjects),
            )

    async def _course(self, until: timedelta | None) -> None:
        scenario = self._stage.scenario
        self._spoil(self._stage)
        await self._stage.fill_up_replicas()
        for _ in range(scenario.nodes):
            self._stage.add_node()
        self._begin(self._disruptor.run(plan_faults(scenario)))
        people = self._begin(self._people())
        self._begin(self._checks())
        await self._clock.sleep(min(until or scenario.duration, scenario.duration))
        people.cancel()
        if until is None or until >= scenario.duration:
            await self._calm_down()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    async def _people(self) -> None:
        """At first they bring their workloads, then they act at the scenario's pace."""
        scenario = self._stage.scenario
        if scenario.deeds_per_minute <= 0:
            return
        pace = timedelta(minutes=1) / scenario.deeds_per_minute
        for _ in range(scenario.workloads):
            await self._clock.sleep(min(pace, timedelta(seconds=1)))
            self._stage.people.act()
        while True:
            await self._clock.sleep(pace * (0.5 + self._stage.people.rng.random()))
            self._stage.people.act()

    async def _checks(self) -> None:
        passed = timedelta(0)
        while True:
            await self._clock.sleep(READ_INTERVAL)
            passed += READ_INTERVAL
            self._watcher.look()
            if passed >= CHECK_INTERVAL:
                passed = timedelta(0)
                self._watcher.check_in_full()

    # The quiet end

    async def _calm_down(self) -> None:
        await self._disruptor.mend()
        await self._stage.people.finish()
        await self._nodes_return()
        await self._stage.people.uncordon_all()
        began = self._clock.monotonic()
        await self._settle()
        self._settled_after = timedelta(seconds=self._clock.monotonic() - began)
        await self._stay_silent()

    async def _nodes_return(self) -> None:
        """Every node is heard, a leader acts and nothing is frozen, within ``RETURN_LIMIT``."""
        mended_at = self._clock.now()
        limit = mended_at + RETURN_LIMIT
        while missing := self._missing(mended_at):
            if self._clock.now() > limit:
                self._watcher.report(
                    [
                        Finding(Rule.LIVENESS, f"after {RETURN_LIMIT} {text}", subjects)
                        for text, subjects in missing
                    ]
                )
            await self._clock.sleep(timedelta(seconds=1))

    def _missing(self, mended_at: datetime) -> list[tuple[str, tuple[str, ...]]]:
        cluster = self._stage.cluster
        missing: list[tuple[str, tuple[str, ...]]] = []
        for node_id in self._stage.nodes():
            node = self._watcher.mirror.node(node_id)
            heard_at = cluster.liveness.last_seen(node_id)
            if node is None or not node.listed_under or not heard_at or heard_at < mended_at:
                missing.append((f"{node_id} is not heard and listed", (node_id,)))
        up = [replica.scheduler for replica in cluster.replicas if replica.is_up]
        for node_id in ("", *self._stage.nodes()):
            if not any(scheduler.acts_for(node_id) for scheduler in up):
                missing.append((f"nobody acts for {node_id or 'what has no node'}", (node_id,)))
        missing.extend(
            (f"{each.instance_id} is in mode {each.mode.mode}: {each.mode.reason}", ())
            for each in up
            if each.mode.mode is not OperatingMode.NORMAL
        )
        return missing

    async def _settle(self) -> None:
        interval = self._stage.cluster.config.reconcile_interval
        overdue = Overdue(self._watcher.scene, interval * _INTERVALS, self._at_work)
        limit = self._clock.now() + SETTLE_LIMIT
        quiet = 0
        while quiet < _INTERVALS:
            self._watcher.read_journals()
            count, findings = overdue.look()
            self._watcher.report(findings)
            if self._clock.now() > limit:
                self._watcher.report(overdue.all(f"not settled after {SETTLE_LIMIT}"))
            quiet = 0 if count else quiet + 1
            await self._clock.sleep(interval)

    def _at_work(self, node_id: NodeId, workload_id: WorkloadId) -> datetime | None:
        model = self._stage.cluster.machines.find(node_id)
        tasks = model.actions(self._clock.now(), workload_id=workload_id) if model else ()
        if not tasks:
            return None
        return tasks[-1].ended_at if tasks[-1].is_finished else self._clock.now()

    async def _stay_silent(self) -> None:
        """What may still end, or ends again and again, is deleted; then nothing may be written."""
        for model in self._stage.cluster.machines:
            self._disruptor.tamperer.clear_restless(model)
        await self._stage.people.give_up(sorted(self._restless()))
        await self._settle()
        # A reason's text may still be brought up to date once, by the next sweep after its time.
        # Within that orphans are found and told, too.
        await self._clock.sleep(MESSAGE_REFRESH + self._stage.cluster.config.pending_sweep_interval)
        await self._settle()
        self._watcher.report(orphans_left(self._watcher.scene, self._reported()))
        self._watcher.watch_silence()
        await self._clock.sleep(timedelta(minutes=1))
        self._watcher.check_at_rest()

    def _reported(self) -> Iterator[tuple[NodeId, WorkloadId, datetime]]:
        """Every node and workload that an agent would report, and since when it has it."""
        for model in self._stage.cluster.machines:
            for row in model.rows(self._clock.now()):
                yield model.settings.node_id, row.workload_id, row.created_at

    def _restless(self) -> Iterator[WorkloadId]:
        for workload in self._watcher.mirror.values(Kind.WORKLOAD, Workload):
            status = self._watcher.mirror.status(workload.id)
            if is_restless(workload) or (status is not None and may_end(workload, status)):
                yield workload.id

    def _on_stray_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = f"{context.get('message')}: {type(error).__name__}: {error}"
        self._watcher.report([Finding(Rule.NO_BUGS, text, ())])

    def _report(self) -> Report:
        counts, people = self._watcher.counts, self._stage.people
        calls = sum(counts[name] for name in counts if name.startswith("agent_"))
        observers = [replica.observer for replica in self._stage.cluster.replicas]
        figures = {
            **{name: counts[name] for name in sorted(counts)},
            **{f"faults_{kind}": n for kind, n in sorted(self._disruptor.counts.items())},
            "agent_calls": calls,
            "placements": sum(each.count(Metric.PLACEMENTS, result="placed") for each in observers),
            "conflicts": sum(each.count(Metric.COMMIT_CONFLICTS) for each in observers),
            "evictions": sum(each.count(Metric.EVICTIONS) for each in observers),
            "ledger_repairs": sum(each.count(Metric.LEDGER_REPAIRS) for each in observers),
            "faults": sum(self._disruptor.counts.values()),
            "deeds": people.accepted + people.refused + people.unanswered,
            "deeds_refused": people.refused,
            "deeds_unanswered": people.unanswered,
            "removals": people.removals,
            "mass_losses": self._watcher.evictions.losses,
            "strays": len(self._watcher.scene.strays),
            "settled_after": round(self._settled_after.total_seconds()),
            "history_lines": self._stage.history.length,
        }
        return Report(
            self._stage.scenario,
            self._stage.history.fingerprint(),
            self._clock.monotonic(),
            figures,
        )

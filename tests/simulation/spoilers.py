"""Ways to break a simulated cluster on purpose, so that each rule is seen to fail.

A spoiler is put into an otherwise calm run. Rogues are writers that do at a given time what no
correct replica would do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.model.ids import StoreRevision
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import StatusRecord
from persys_core.ports.cluster_store import (
    ClusterStore,
    Commit,
    CommitResult,
    Delete,
    Guarantee,
    Key,
    Kind,
    Put,
    Record,
    Snapshot,
    Versioned,
    WatchEvent,
    Write,
)
from persys_core.sim.invariants import Rule
from persys_core.sim.report import SimulationError
from persys_core.sim.runner import run_scenario
from persys_core.sim.scenario import Scenario
from persys_core.sim.stage import Stage

__all__ = [
    "CALM",
    "RewritingStore",
    "calm_run",
    "careless",
    "rogue",
    "running_workload",
    "violated",
    "without_drifts",
    "without_intents",
    "write",
]

CALM = Scenario(
    11,
    nodes=4,
    workloads=12,
    duration=timedelta(minutes=4),
    faults_per_minute=0,
)
NOTHING = Commit((), (), "nothing")
Spoil = Callable[[Stage], None]


class RewritingStore:
    """A store that commits something else than what it is asked to."""

    def __init__(self, store: ClusterStore, rewrite: Callable[[Commit], Commit]) -> None:
        self._store = store
        self._rewrite = rewrite

    @property
    def guarantees(self) -> Guarantee:
        return self._store.guarantees

    async def snapshot(self) -> Snapshot:
        return await self._store.snapshot()

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        return await self._store.get(keys)

    async def commit(self, commit: Commit) -> CommitResult:
        return await self._store.commit(self._rewrite(commit))

    def watch(self, after: StoreRevision) -> AsyncIterator[WatchEvent]:
        return self._store.watch(after)

    @property
    def backend_id(self) -> str:
        return self._store.backend_id

    async def compact(self, before: StoreRevision) -> None:
        await self._store.compact(before)

    async def probe(self, *, writing: bool = False) -> StoreRevision:
        return await self._store.probe(writing=writing)


def careless(commit: Commit) -> Commit:
    """Without any comparison: the last writer wins."""
    return Commit((), commit.writes, commit.token)


def without_intents(commit: Commit) -> Commit:
    """As a scheduler would commit that sends first and writes later."""
    return Commit(commit.expects, tuple(map(_without_intent, commit.writes)), commit.token)


def without_drifts(commit: Commit) -> Commit:
    """As a scheduler would commit that sees no orphans: neither drifts nor what remedies them."""
    kept = tuple(each for each in commit.writes if each.key.kind is not Kind.DRIFT)
    return Commit(commit.expects, kept, commit.token) if kept == commit.writes else NOTHING


def rogue(at: timedelta, act: Callable[[Stage], None]) -> Spoil:
    """Have ``act`` done at ``at`` after the start."""

    def spoil(stage: Stage) -> None:
        async def wait_and_act() -> None:
            await stage.clock.sleep(at)
            act(stage)

        stage.keep(asyncio.get_running_loop().create_task(wait_and_act()))

    return spoil


def write(stage: Stage, *writes: Write) -> None:
    """Write behind everybody's back, without any comparison."""
    stage.cluster.backend.apply(Commit((), writes, "rogue"))


def running_workload(stage: Stage) -> StatusRecord:
    """The first workload that runs, by id."""
    records = stage.watcher.mirror.values(Kind.STATUS, StatusRecord)
    return min(
        (record for record in records if record.status is WorkloadStatus.RUNNING),
        key=lambda record: record.id,
    )


def calm_run(spoil: Spoil = lambda stage: None, scenario: Scenario = CALM) -> None:
    """A run without faults, but for what ``spoil`` does."""
    run_scenario(scenario, spoil=spoil)


def violated(run: Callable[[], object]) -> Rule:
    """The rule that ``run`` violates."""
    with pytest.raises(SimulationError) as caught:
        run()
    return caught.value.finding.rule


def _without_intent(each: Write) -> Write:
    if isinstance(each, Delete) or not isinstance(each.value, StatusRecord):
        return each
    return Put(each.key, evolve(each.value, intent=None))

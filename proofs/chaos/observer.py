"""The observer: follows all of etcd's history and the machines' journals, and judges both.

It has an etcd client of its own and asks no scheduler anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, field, frozen

from persys_adapters.etcd.client import EtcdClient, EtcdConfig, WatchBatch, end_of_prefix
from persys_core.sim.agent_journal import Happening
from persys_core.sim.invariants import Rule
from persys_core.sim.mirror import Step
from proofs.chaos.journal import JournalFile, JournalLine
from proofs.chaos.picture import Lead, Picture
from proofs.chaos.promises import Promises
from proofs.chaos.rules_machines import Bounds, broken_over_time
from proofs.chaos.rules_store import Before, broken_by
from proofs.chaos.timelines import Timelines
from proofs.chaos.violations import Violation

__all__ = ["Observer", "Turn", "observing"]

_LOOK_SECONDS = 0.1
_ALL = b"/"


@frozen
class Turn:
    """Another one leads from this revision on, which was seen at ``at``."""

    at: datetime
    revision: int
    lead: Lead


@define(eq=False)
class Observer:
    """Everything that was seen; ``violations`` has what is wrong at once, ``verdict`` the rest."""

    picture: Picture = field(factory=Picture)
    timelines: Timelines = field(factory=Timelines)
    promises: Promises = field(factory=Promises)
    violations: list[Violation] = field(factory=list)
    lines: list[JournalLine] = field(factory=list)
    steps: int = 0
    leaders: list[Turn] = field(factory=list)
    """Who led (see ``Picture.lead``), from when on."""
    keep: bool = False
    """Whether the steps are kept in ``history``."""
    history: list[tuple[Step, str]] = field(factory=list)
    """Every step with the token of its commit."""
    changed: asyncio.Event = field(factory=asyncio.Event)

    def take(self, batch: WatchBatch, at: datetime) -> Step:
        """One revision of etcd."""
        before = Before(self.picture.epochs(), self.timelines.newest)
        step = self.picture.take(batch, at)
        self.steps += 1
        self.violations.extend(broken_by(step, self.picture, before, self.promises))
        self.timelines.step(step)
        lead = self.picture.lead
        if lead is not None and (not self.leaders or self.leaders[-1].lead != lead):
            self.leaders.append(Turn(at, step.revision, lead))
        if self.keep:
            self.history.append((step, self.picture.token))
        self._tell()
        return step

    def read(self, lines: Sequence[JournalLine]) -> None:
        """What is new in the machines' journals."""
        for line in lines:
            self.timelines.line(line)
        self.lines.extend(lines)
        if lines:
            self._tell()

    def verdict(self, bounds: Bounds) -> list[Violation]:
        """Everything that is wrong, when nothing more is to come."""
        unreadable = [
            Violation(Rule.NOTHING_LOST, text, datetime.now(UTC))
            for text in self.picture.unreadable
        ]
        late = broken_over_time(self.timelines, self.promises, bounds)
        return [*self.violations, *unreadable, *late]

    def calls(self, *what: Happening) -> list[JournalLine]:
        """The lines of these kinds, in the order of time."""
        return sorted((line for line in self.lines if line.what in what), key=lambda each: each.at)

    def now(self) -> datetime:
        """The present instant."""
        return datetime.now(UTC)

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


@asynccontextmanager
async def observing(
    observer: Observer, endpoints: Sequence[str], journal: Path | None
) -> AsyncIterator[Observer]:
    """The observer at work, from the beginning of etcd's history on."""
    async with EtcdClient(EtcdConfig(tuple(endpoints))) as etcd:
        tasks = [asyncio.create_task(_follow(observer, etcd))]
        if journal is not None:
            tasks.append(asyncio.create_task(_read(observer, JournalFile(journal))))
        try:
            yield observer
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended


async def _follow(observer: Observer, etcd: EtcdClient) -> None:
    async for event in etcd.watch(_ALL, end_of_prefix(_ALL), 1):
        if not isinstance(event, WatchBatch):
            raise AssertionError(f"the observer did not see all of etcd's history: {event}")
        observer.take(event, datetime.now(UTC))


async def _read(observer: Observer, journal: JournalFile) -> None:
    while True:
        observer.read(journal.read())
        await asyncio.sleep(_LOOK_SECONDS)

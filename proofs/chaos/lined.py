"""Machines in this process, each behind a line that can be held, whose journals the observer reads.

What a replica has sent to a machine can so be kept on its way, while others still reach it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from attrs import define, field

from persys_agent.simulated.fleet import FleetOptions, SimulatedFleet
from proofs.chaos.journal import JournalLine
from proofs.chaos.machines import settings_of
from proofs.chaos.observer import Observer
from tests.servers.line import Line

__all__ = ["LinedFleet", "lined_fleet"]

_LOOK_SECONDS = 0.02


@define(eq=False)
class LinedFleet:
    """The machines by name, and the line to each of them."""

    fleet: SimulatedFleet
    lines: dict[str, Line] = field(factory=dict)
    _read: dict[str, int] = field(factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The machines' names."""
        return tuple(self.lines)

    async def add(self, number: int, cpu: int) -> None:
        """One more machine; it tells the scheduler the line's endpoint as its own."""
        settings = settings_of(number, cpu, 1 << 20)
        line = await Line.to("127.0.0.1:1")
        node = await self.fleet.add(settings=settings)
        # Nothing was waited for since the machine was connected, so it has not registered yet.
        model = self.fleet.model(node.node_id)
        line.lead_to(node.endpoint)
        model.settings = model.settings.listening_at(line.endpoint)
        self.lines[node.node_id] = line

    def hold_at(self, words: bytes, names: Collection[str]) -> None:
        """Keep what is on its way to these machines on connections from when they carry ``words``;
        with none, connections that are not held yet are let alone."""
        for name in names:
            self.lines[name].hold_at = words

    def hold_back(self, names: Collection[str]) -> bool:
        """Whether something is kept from each of these machines."""
        return all(self.lines[name].holds_back for name in names)

    def go_on(self) -> None:
        """Deliver what was kept."""
        for line in self.lines.values():
            line.go_on()

    def news(self) -> list[JournalLine]:
        """What is new in the journals."""
        now, found = datetime.now(UTC), []
        for name in self.lines:
            model = self.fleet.model(name)
            model.catch_up(now)
            entries = model.journal.entries
            for each in entries[self._read.get(name, 0) :]:
                found.append(
                    JournalLine(
                        name, each.at, each.what, each.workload_id, each.revision_id, each.detail,
                        each.epoch,
                    )
                )  # fmt: skip
            self._read[name] = len(entries)
        return found


@asynccontextmanager
async def lined_fleet(
    door: str, observer: Observer, nodes: int, cpu: int
) -> AsyncIterator[LinedFleet]:
    """So many machines, which register at ``door``."""
    async with SimulatedFleet(FleetOptions(nodes=0, scheduler=door)) as fleet:
        lined = LinedFleet(fleet)
        for number in range(1, nodes + 1):
            await lined.add(number, cpu)
        reading = asyncio.create_task(_read(lined, observer))
        try:
            yield lined
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            for line in lined.lines.values():
                await line.aclose()


async def _read(lined: LinedFleet, observer: Observer) -> None:
    while True:
        observer.read(lined.news())
        await asyncio.sleep(_LOOK_SECONDS)

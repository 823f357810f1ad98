"""``LocalLoop``: again and again, what is seen is compared with what should be.

Decided here: when the agent looks, and that one workload that takes long holds up no other. What
is to be done about a workload is ``repair.decide_repair``'s decision; workloads with an open task
are left to it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

import structlog
from attrs import define

from persys_agent.engine.backoff import Backoff
from persys_agent.engine.inventory import Seen
from persys_agent.engine.repair import Repair, decide_repair
from persys_agent.engine.wishes import spec_kept
from persys_agent.engine.works import Works
from persys_agent.state.records import Workload
from persys_core.model.ids import WorkloadId
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState

__all__ = ["LocalLoop", "LoopCounts"]

_STARTS = (Repair.START, Repair.RECREATE)
_AT_ONCE = 4


@define
class LoopCounts:
    """What happened since the start; ``errors`` are bugs, which tests expect to be none."""

    passes: int = 0
    repairs: int = 0
    failed_repairs: int = 0
    errors: int = 0


class LocalLoop:
    """``interval``: how long between two looks."""

    def __init__(
        self,
        works: Works,
        *,
        interval: timedelta = timedelta(seconds=30),
        may_start: Callable[[WorkloadSpec], bool] = lambda _: True,
        rng: random.Random | None = None,
        on_pass: Callable[[timedelta], None] = lambda _: None,
        on_failure: Callable[[WorkloadId], None] = lambda _: None,
    ) -> None:
        """``on_pass`` is told how long each look took, ``on_failure`` whose repair failed."""
        self._on_pass, self._on_failure = on_pass, on_failure
        self.counts = LoopCounts()
        self._works = works
        self._clock = works.clock
        self._interval = interval
        self._may_start = may_start
        self._backoff = Backoff(rng or random.Random())
        self._repairing: dict[WorkloadId, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Look until cancelled; what is being repaired then is left as it is."""
        try:
            while True:
                try:
                    await self.pass_once()
                except Exception:
                    self.counts.errors += 1
                    structlog.get_logger().exception("bug: a pass of the local loop failed")
                await self._clock.sleep(self._interval)
        finally:
            repairing = tuple(self._repairing.values())
            for each in repairing:
                each.cancel()
            await asyncio.gather(*repairing, return_exceptions=True)

    async def pass_once(self) -> None:
        """Look once, and begin what is to be done; see ``settled`` for its end."""
        began = self._clock.monotonic()
        self.counts.passes += 1
        rows = tuple(self._works.state)
        look = await self._works.inventory.look()
        self._works.board.note_orphans(look, frozenset(row.id for row in rows))
        self._backoff.keep_only(frozenset(row.id for row in rows))
        await self._works.board.note((row, look.of(row.type, row.id)) for row in rows)
        for row in rows:
            self._consider(row.id, look.of(row.type, row.id))
        self._on_pass(timedelta(seconds=self._clock.monotonic() - began))

    async def settled(self) -> None:
        """Wait for the repairs that have begun."""
        await asyncio.gather(*self._repairing.values())

    def _consider(self, workload_id: WorkloadId, seen: Seen) -> None:
        """Begin a repair where one may be needed; what is seen then counts."""
        row = self._works.state.get(workload_id)
        if row is None or self._works.queue.open_task(workload_id) is not None:
            return
        if _decided(row, seen) is not Repair.NOTHING:
            self._begin(row)

    def _begin(self, row: Workload) -> None:
        if row.id in self._repairing or not self._backoff.is_due(row.id, self._clock.monotonic()):
            return
        task = asyncio.create_task(self._repair(row.id), name=f"repair-{row.id}")
        self._repairing[row.id] = task
        task.add_done_callback(lambda _: self._repairing.pop(row.id, None))

    async def _repair(self, workload_id: WorkloadId) -> None:
        try:
            async with self._slots:
                await self._works.queue.exclusively(
                    workload_id, lambda: self._look_again(workload_id)
                )
        except Exception:
            self.counts.errors += 1
            structlog.get_logger().exception("bug: a repair failed", workload=workload_id)

    async def _look_again(self, workload_id: WorkloadId) -> None:
        """Nothing else works on it now, so what is seen now is what counts."""
        row = self._works.state.get(workload_id)
        if row is None:
            return
        repair = _decided(row, await self._works.inventory.see(row.type, workload_id))
        spec = spec_kept(row)
        is_held = spec is not None and repair in _STARTS and not self._may_start(spec)
        if repair is Repair.NOTHING or is_held:
            return
        self._backoff.attempt(workload_id, self._clock.monotonic())
        self.counts.repairs += 1
        was_done = await self._works.executor.repair(workload_id, repair)
        if not was_done:
            self.counts.failed_repairs += 1
            self._on_failure(workload_id)
        structlog.get_logger().info(
            "repaired" if was_done else "repair failed",
            workload=workload_id,
            repair=repair.name.lower(),
        )


def _decided(row: Workload, seen: Seen) -> Repair:
    """What is to be done; of what cannot be read any more, only a delete is carried on."""
    spec = spec_kept(row)
    if spec is None:
        return Repair.DELETE if row.desired_state is DesiredState.DELETED else Repair.NOTHING
    return decide_repair(row, spec, seen)

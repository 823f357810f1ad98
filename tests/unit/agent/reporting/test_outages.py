from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.errors import PersysError
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench

BEAT = timedelta(seconds=1)


class _There:
    """Always answers, and notes when it was told something."""

    def __init__(self, clock: VirtualClock) -> None:
        self.beats: list[float] = []
        self._clock = clock

    async def register(self, node: RegisterNode) -> RegisterAnswer:
        return RegisterAnswer(True, "", BEAT, self._clock.now() + BEAT * 3)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        self.beats.append(self._clock.monotonic())
        return HeartbeatAnswer(True, False, self._clock.now() + BEAT * 3)


class _Away:
    """Answered once, and nobody since."""

    def __init__(self, clock: VirtualClock) -> None:
        self.called: list[float] = []
        self._clock = clock

    async def register(self, node: RegisterNode) -> RegisterAnswer:
        self.called.append(self._clock.monotonic())
        if len(self.called) > 1:
            raise PersysError("connection refused")
        return RegisterAnswer(True, "", BEAT, self._clock.now() + BEAT * 3)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        raise PersysError("connection refused")


@virtual_time()
async def test_after_a_long_outage_a_node_is_heard_within_its_lease(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """However long the scheduler was away, the next call is less than a lease (three intervals)
    away, as the scheduler's interval is; and yet nobody calls without a pause."""
    away = _Away(clock)
    async with Bench(clock, tmp_path).node() as node:
        running = asyncio.create_task(node.assembly.reporter(away, random.Random(1)).run())
        await clock.sleep(timedelta(minutes=10))
        running.cancel()
    waits = [later - earlier for earlier, later in pairwise(away.called)]
    assert min(waits) >= 0.5
    assert 2 <= max(waits) < 3


@virtual_time()
async def test_a_runtime_that_hangs_makes_no_node_silent(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A daemon that takes connections and answers none is told as silent in time: no beat waits
    for it until the node's lease is over, and its work would be started elsewhere as well."""
    there, bench = _There(clock), Bench(clock, tmp_path)
    bench.host.faults.delays["instances"] = timedelta(minutes=1)
    async with bench.node() as node:
        running = asyncio.create_task(node.assembly.reporter(there, random.Random(1)).run())
        await clock.sleep(timedelta(minutes=1))
        running.cancel()
    assert len(there.beats) > 20
    assert max(later - earlier for earlier, later in pairwise(there.beats)) < 3

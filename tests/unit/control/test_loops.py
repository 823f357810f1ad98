from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

import pytest

from persys_core.control.loops import LoopLag, PeriodicLoop, StrayCancellationError
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time

TEN = timedelta(seconds=10)


class Bench:
    """A loop every ten seconds whose passes are noted; ``body`` is what a pass does."""

    def __init__(
        self,
        clock: VirtualClock,
        body: Callable[[int], timedelta] = lambda _: timedelta(0),
        *,
        jitter: float = 0.0,
        rng: Random | None = None,
    ) -> None:
        self.clock = clock
        self.body = body
        self.began: list[float] = []
        self.at_work = 0
        self.bugs: list[tuple[str, Exception]] = []
        self.loop = PeriodicLoop(
            "test",
            TEN,
            self.one_pass,
            clock,
            on_bug=lambda name, error: self.bugs.append((name, error)),
            jitter=jitter,
            rng=rng,
        )

    async def one_pass(self) -> None:
        assert self.at_work == 0
        self.began.append(self.clock.monotonic())
        self.at_work += 1
        try:
            await self.clock.sleep(self.body(len(self.began)))
        finally:
            self.at_work -= 1

    async def __aenter__(self) -> Bench:
        self.task = asyncio.create_task(self.loop.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def crash(number: int, times: int) -> timedelta:
    """Raise in the first ``times`` passes."""
    if number <= times:
        raise RuntimeError(f"pass {number}")
    return timedelta(0)


@virtual_time()
async def test_passes_begin_every_interval_from_the_start(clock: VirtualClock) -> None:
    """The first pass is made at once; a pass's own length does not stretch the interval."""
    async with Bench(clock, lambda _: timedelta(seconds=4)) as bench:
        await clock.sleep(timedelta(seconds=35))
        assert bench.began == [0, 10, 20, 30]
        assert bench.loop.passes == 4
        assert bench.loop.overruns == 0


@virtual_time()
async def test_a_long_pass_is_never_overlapped(clock: VirtualClock) -> None:
    """A pass that outlasts its interval is followed by the next at once, and counted."""
    lengths = {2: timedelta(seconds=25)}
    async with Bench(clock, lambda number: lengths.get(number, timedelta(0))) as bench:
        await clock.sleep(timedelta(seconds=50))
        assert bench.began == [0, 10, 35, 45]
        assert bench.loop.overruns == 1


@virtual_time()
async def test_a_nudge_makes_a_pass_at_once(clock: VirtualClock) -> None:
    """Many nudges are one pass, and the interval counts from it."""
    async with Bench(clock) as bench:
        await clock.sleep(timedelta(seconds=3))
        for _ in range(4):
            bench.loop.nudge()
        await clock.sleep(timedelta(seconds=15))
        assert bench.began == [0, 3, 13]


@virtual_time()
async def test_a_nudge_during_a_pass_is_not_lost(clock: VirtualClock) -> None:
    """What changed during a pass is looked at right after it."""
    async with Bench(clock, lambda _: timedelta(seconds=4)) as bench:
        await clock.sleep(timedelta(seconds=3))
        bench.loop.nudge()
        await clock.sleep(timedelta(seconds=4))
        assert bench.began == [0, 4]


@virtual_time()
async def test_a_crash_is_told_and_does_not_end_the_loop(clock: VirtualClock) -> None:
    """Every exception is counted and reported; passes go on after 1, 2, 4 … seconds."""
    async with Bench(clock, lambda number: crash(number, 3)) as bench:
        await clock.sleep(timedelta(seconds=20))
        assert bench.began == [0, 1, 3, 7, 17]
        assert [(name, str(error)) for name, error in bench.bugs] == [
            ("test", f"pass {number}") for number in (1, 2, 3)
        ]
        assert bench.loop.crashes == 3
        assert not bench.loop.is_crashing


@virtual_time()
async def test_nudges_do_not_shorten_the_delay_after_a_crash(clock: VirtualClock) -> None:
    """A body that crashes at every nudge does not spin."""
    async with Bench(clock, lambda number: crash(number, 100)) as bench:
        for _ in range(100):
            bench.loop.nudge()
            await clock.sleep(timedelta(seconds=0.1))
        assert bench.began == [0, 1, 3, 7]
        assert bench.loop.is_crashing


@virtual_time()
async def test_a_stray_cancellation_does_not_end_the_loop(clock: VirtualClock) -> None:
    """A body that awaits something cancelled has a bug; the loop outlives it."""

    async def body() -> None:
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    bugs: list[Exception] = []
    loop = PeriodicLoop("stray", TEN, body, clock, on_bug=lambda _, error: bugs.append(error))
    task = asyncio.create_task(loop.run())
    await clock.sleep(timedelta(seconds=2))
    assert not task.done()
    assert {type(error) for error in bugs} == {StrayCancellationError}
    task.cancel()


@virtual_time()
async def test_cancelling_ends_the_body_too(clock: VirtualClock) -> None:
    """A leader that lost its lease stops in the middle of a pass; that is no crash."""
    async with Bench(clock, lambda _: timedelta(hours=1)) as bench:
        await clock.sleep(timedelta(seconds=3))
        bench.task.cancel()
        await asyncio.gather(bench.task, return_exceptions=True)
        assert bench.task.cancelled()
        assert (bench.at_work, bench.loop.crashes, bench.bugs) == (0, 0, [])
        assert len(asyncio.all_tasks()) == 1


@virtual_time()
async def test_age_is_the_time_since_a_pass_ended_well(clock: VirtualClock) -> None:
    """A loop that hangs or crashes grows old, and readiness can see it."""
    async with Bench(clock, lambda number: timedelta(hours=number > 2)) as bench:
        await clock.sleep(timedelta(seconds=5))
        assert bench.loop.age() == timedelta(seconds=5)
        await clock.sleep(timedelta(seconds=95))
        assert bench.loop.age() == timedelta(seconds=90)


@virtual_time()
async def test_jitter_spreads_the_passes_of_replicas(clock: VirtualClock) -> None:
    """Each wait is longer by up to the given share of the interval, and never shorter."""
    async with Bench(clock, jitter=0.5, rng=Random(1)) as bench:
        await clock.sleep(timedelta(minutes=5))
        gaps = [b - a for a, b in pairwise(bench.began)]
        assert all(10 <= gap <= 15 for gap in gaps)
        assert len(set(gaps)) > 5


@virtual_time()
async def test_an_interval_of_zero_is_refused(clock: VirtualClock) -> None:
    """A loop without an interval would never let anything else run."""

    async def body() -> None: ...

    with pytest.raises(ValueError, match="loop idle"):
        PeriodicLoop("idle", timedelta(0), body, clock, on_bug=lambda *_: None)


class StallingClock:
    """A clock that can jump while no callback runs, as it does when a call blocks the loop."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.stalled = timedelta(0)

    def stall(self, seconds: float) -> None:
        self.stalled += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return self.clock.now() + self.stalled

    def monotonic(self) -> float:
        return self.clock.monotonic() + self.stalled.total_seconds()

    async def sleep(self, duration: timedelta) -> None:
        await self.clock.sleep(duration)


@virtual_time()
async def test_a_stall_is_seen_before_and_after_the_meter_wakes(clock: VirtualClock) -> None:
    """Five seconds of blocking count at once, since the monitor may run first (N08)."""
    stalling = StallingClock(clock)
    lag = LoopLag(stalling)
    task = asyncio.create_task(lag.run())
    await clock.sleep(timedelta(seconds=3.5))
    assert lag.current() == timedelta(0)
    stalling.stall(5)
    at_once = lag.current()
    assert timedelta(seconds=4.5) <= at_once <= timedelta(seconds=5)
    await clock.sleep(timedelta(seconds=2))
    assert lag.current() == timedelta(seconds=5)
    task.cancel()


@virtual_time()
async def test_a_stall_is_forgotten_after_the_window(clock: VirtualClock) -> None:
    """The worst of the last window counts: a smaller stall takes over when the larger is old."""
    stalling = StallingClock(clock)
    lag = LoopLag(stalling, window=timedelta(seconds=30))
    task = asyncio.create_task(lag.run())
    await clock.sleep(timedelta(seconds=1.2))
    stalling.stall(5)
    await clock.sleep(timedelta(seconds=20))
    stalling.stall(1)
    await clock.sleep(timedelta(seconds=5))
    assert lag.current() == timedelta(seconds=5)
    await clock.sleep(timedelta(seconds=10))
    assert lag.current() == timedelta(seconds=1)
    await clock.sleep(timedelta(seconds=30))
    assert lag.current() == timedelta(0)
    task.cancel()


@virtual_time()
async def test_a_small_lag_is_none(clock: VirtualClock) -> None:
    """Below the bound deadlines are kept to the letter."""
    stalling = StallingClock(clock)
    lag = LoopLag(stalling)
    task = asyncio.create_task(lag.run())
    await clock.sleep(timedelta(seconds=1.2))
    stalling.stall(0.1)
    await clock.sleep(timedelta(seconds=2))
    assert lag.current() == timedelta(0)
    task.cancel()


@virtual_time()
async def test_a_meter_that_does_not_run_measures_nothing(clock: VirtualClock) -> None:
    """Without its loop the meter adds nothing, before the start and after the end."""
    lag = LoopLag(clock)
    task = asyncio.create_task(lag.run())
    await clock.sleep(timedelta(seconds=1))
    task.cancel()
    await clock.sleep(timedelta(hours=1))
    assert lag.current() == timedelta(0)

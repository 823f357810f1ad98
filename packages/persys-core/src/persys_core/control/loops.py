"""Loops that never die in silence, and the measure of how late this process is.

Decided here: when a body runs next, and what its failure means. Not decided here: what bodies do,
and whether this replica may run them (leadership).

* A pass begins every ``interval``, counted from the beginning of the one before; one that takes
  longer is followed at once by the next, never overlapped, and counted as an overrun.
* ``nudge`` has a pass made at once, or right after the present one.
* An exception is a bug of the body: counted, reported, and followed by a growing delay, which a
  nudge does not shorten. The loop goes on.
* ``age`` says how long ago a pass last ended well; readiness and metrics read it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random

from persys_core.model.errors import PersysError
from persys_core.ports.clock import Clock
from persys_core.retry.policy import RetryPolicy

__all__ = ["CRASH_POLICY", "LoopLag", "PeriodicLoop", "StrayCancellationError", "bug_of"]

CRASH_POLICY = RetryPolicy(base=timedelta(seconds=1), cap=timedelta(minutes=1))
"""The delays after passes that crashed: 1, 2, 4 … 60 seconds."""

_ZERO = timedelta(0)


class StrayCancellationError(PersysError):
    """Something that was awaited had been cancelled, though nobody asked the waiter to end."""


async def bug_of(work: Awaitable[None]) -> Exception | None:
    """Await ``work`` at a loop's edge: the exception that left it, or None.

    A cancellation of the present task passes; a stray one is a bug like any other, since it would
    end the loop in silence.
    """
    try:
        await work
    except Exception as error:
        return error
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        stray = StrayCancellationError("this is a bug: a cancelled task or future was awaited")
        stray.__cause__ = cancelled
        return stray
    return None


class PeriodicLoop:
    """One body, run again and again; see the module.

    ``interval`` above zero. ``jitter``: each wait is lengthened by up to this share of the
    interval, where ``rng`` is given, so that replicas do not march in step. ``on_bug`` is told of
    each exception and must not raise.
    """

    def __init__(
        self,
        name: str,
        interval: timedelta,
        body: Callable[[], Awaitable[None]],
        clock: Clock,
        *,
        on_bug: Callable[[str, Exception], None],
        crash_policy: RetryPolicy = CRASH_POLICY,
        jitter: float = 0.0,
        rng: Random | None = None,
    ) -> None:
        if interval <= _ZERO:
            raise ValueError(f"the interval of loop {name} is {interval}; give one above zero")
        self.name = name
        self.passes = 0
        self.crashes = 0
        self.overruns = 0
        self._interval = interval
        self._body = body
        self._clock = clock
        self._on_bug = on_bug
        self._crash_policy = crash_policy
        self._jitter = jitter
        self._rng = rng
        self._nudged = asyncio.Event()
        self._crashes_in_a_row = 0
        self._fresh_at = clock.monotonic()

    def nudge(self) -> None:
        """Have a pass made as soon as may be; many nudges are one."""
        self._nudged.set()

    def age(self) -> timedelta:
        """How long ago a pass last ended well; before the first one, since when there was none."""
        return timedelta(seconds=self._clock.monotonic() - self._fresh_at)

    @property
    def is_crashing(self) -> bool:
        """Whether the last pass crashed."""
        return self._crashes_in_a_row > 0

    async def run(self) -> None:
        """Make passes, the first one at once, until cancelled. The body is cancelled with it."""
        self._fresh_at = self._clock.monotonic()
        while True:
            began = self._clock.monotonic()
            self._nudged.clear()
            if await self._one_pass():
                await self._wait_for_next(began)
            else:
                await self._clock.sleep(self._crash_policy.delay_before(self._crashes_in_a_row))

    async def _one_pass(self) -> bool:
        """Run the body once; whether it ended well."""
        error = await bug_of(self._body())
        if error is not None:
            self.crashes += 1
            self._crashes_in_a_row += 1
            self._on_bug(self.name, error)
            return False
        self.passes += 1
        self._crashes_in_a_row = 0
        self._fresh_at = self._clock.monotonic()
        return True

    async def _wait_for_next(self, began: float) -> None:
        spent = timedelta(seconds=self._clock.monotonic() - began)
        if spent > self._interval:
            self.overruns += 1
        wait = max(self._interval - spent, _ZERO)
        if self._rng is not None:
            wait += self._interval * (self._jitter * self._rng.random())
        await _set_or_elapsed(self._nudged, wait, self._clock)


async def _set_or_elapsed(event: asyncio.Event, duration: timedelta, clock: Clock) -> None:
    """Wait until ``event`` is set, which it is at the latest when ``duration`` has passed."""
    alarm = asyncio.create_task(_set_after(event, duration, clock))
    try:
        await event.wait()
    finally:
        alarm.cancel()


async def _set_after(event: asyncio.Event, duration: timedelta, clock: Clock) -> None:
    await clock.sleep(duration)
    event.set()


class LoopLag:
    """How late this process's event loop is (field report N08).

    It sleeps for ``period`` again and again and sees how much later it wakes. ``current`` is the
    worst of the last ``window`` where that is at least ``bound``, else zero; it counts the present
    sleep too, since after a long stall others may ask before this meter is woken.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        period: timedelta = timedelta(seconds=0.5),
        window: timedelta = timedelta(seconds=30),
        bound: timedelta = timedelta(seconds=0.2),
    ) -> None:
        self._clock = clock
        self._period = period
        self._window = window.total_seconds()
        self._bound = bound
        # (when measured, seconds late), the worst first: what is less and older cannot matter.
        self._worst: deque[tuple[float, float]] = deque()
        self._wakes_at: float | None = None

    async def run(self) -> None:
        """Measure until cancelled."""
        try:
            while True:
                self._wakes_at = self._clock.monotonic() + self._period.total_seconds()
                await self._clock.sleep(self._period)
                self._note(self._clock.monotonic(), self._overdue())
        finally:
            self._wakes_at = None

    def current(self) -> timedelta:
        """What to add to every deadline; zero while the loop is quick."""
        self._drop_old(self._clock.monotonic())
        worst = self._worst[0][1] if self._worst else 0.0
        lag = timedelta(seconds=max(worst, self._overdue()))
        return lag if lag >= self._bound else _ZERO

    def _overdue(self) -> float:
        if self._wakes_at is None:
            return 0.0
        return max(0.0, self._clock.monotonic() - self._wakes_at)

    def _note(self, at: float, late: float) -> None:
        while self._worst and self._worst[-1][1] <= late:
            self._worst.pop()
        self._worst.append((at, late))
        self._drop_old(at)

    def _drop_old(self, now: float) -> None:
        while self._worst and self._worst[0][0] < now - self._window:
            self._worst.popleft()

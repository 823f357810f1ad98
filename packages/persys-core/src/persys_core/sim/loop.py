"""An asyncio event loop on which waiting takes no time.

Decided here: how time passes. Whenever no callback is ready, the loop's clock jumps to the next
timer; when there is no timer either, nothing can ever happen again and that is an error which
names the tasks that wait. No thread, no socket and no real clock is involved, and equal programs
run in equal order: ready callbacks first in first out, timers by their due time.

Not decided here: what the time is called; ``clock.VirtualClock`` puts dates to it.

Use ``run_virtual``::

    async def scenario(clock: VirtualClock) -> None:
        await clock.sleep(timedelta(hours=12))

    run_virtual(scenario, start=datetime(2026, 1, 1, tzinfo=UTC))
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

from persys_core.model.errors import PersysError
from persys_core.sim.clock import VirtualClock

__all__ = [
    "DEFAULT_START",
    "VirtualDeadlockError",
    "VirtualLoop",
    "VirtualTimeLimitError",
    "run_virtual",
]

T = TypeVar("T")
DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)
_TICKS_PER_SECOND = 1_000_000
# Just over half a tick: a timer is due when it rounds to the present tick, and never earlier.
_RESOLUTION = 0.51 / _TICKS_PER_SECOND
_SHOWN_TASKS = 20


class VirtualDeadlockError(PersysError):
    """Every task waits for another one and no timer is set: nothing can happen any more."""


class VirtualTimeLimitError(PersysError):
    """The simulated time passed the limit that was given to the loop."""


class _SerialTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory.

    ``asyncio.wait`` and ``TaskGroup`` keep tasks in sets and cancel them in the set's order.
    """

    def __init__(self, coro: Coroutine[Any, Any, Any], serial: int, **options: Any) -> None:
        self._serial = serial
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._serial

    def __eq__(self, other: object) -> bool:
        return self is other


class _Jump:
    """Stands where a loop has its selector: instead of waiting, it moves the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            self._loop.report_deadlock()
        if timeout > 0:
            self._loop.jump()
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop; ``time()`` counts simulated seconds from 0, in whole microseconds.

    ``limit``: the furthest that time may run; passing it raises ``VirtualTimeLimitError``, so
    that a scenario with an endless background loop ends when its own part never does.
    """

    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, *, limit: timedelta | None = None) -> None:
        super().__init__()
        self._ticks = 0
        self._limit = limit
        self._clock_resolution = _RESOLUTION
        self._selector = _Jump(self)
        self._serials = itertools.count(1)
        self.set_task_factory(_task_factory)

    def time(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._ticks / _TICKS_PER_SECOND

    @property
    def elapsed(self) -> timedelta:
        """Simulated time since the loop was made."""
        return timedelta(microseconds=self._ticks)

    def next_serial(self) -> int:
        """The number of the next task, from 1; tasks are named after it."""
        return next(self._serials)

    def jump(self) -> None:
        """Move the clock to the next timer. Raises ``VirtualTimeLimitError`` beyond the limit."""
        due = round(self._scheduled[0].when() * _TICKS_PER_SECOND)
        if self._limit is not None and timedelta(microseconds=due) > self._limit:
            raise VirtualTimeLimitError(
                f"the scenario was still running at its limit of {self._limit} of simulated time;"
                f" unfinished tasks:{_described(asyncio.all_tasks(self))}"
            )
        self._ticks = max(self._ticks, due)

    def report_deadlock(self) -> NoReturn:
        """Raise ``VirtualDeadlockError`` with the tasks that wait and where they do."""
        raise VirtualDeadlockError(
            f"nothing is ready and no timer is set {self.elapsed} after the start, so nothing can"
            f" happen any more; tasks that wait:{_described(asyncio.all_tasks(self))}"
        )

    def run_in_executor(self, executor: object, func: object, *args: object) -> NoReturn:
        """Refused: a thread runs on real time, and its answer would come at a random instant."""
        raise RuntimeError(
            f"{func!r} was handed to a thread; under virtual time everything runs on the loop."
            " Give the code under test an in-memory implementation of the port it calls."
        )

    def _process_events(self, event_list: list[object]) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """The loop never sleeps, so nothing needs to wake it."""


def run_virtual(
    scenario: Callable[[VirtualClock], Coroutine[Any, Any, T]],
    *,
    start: datetime = DEFAULT_START,
    limit: timedelta | None = None,
) -> T:
    """Run ``scenario(clock)`` to its end on simulated time and return what it returns.

    ``start`` is the clock's first instant (aware). Tasks that are left over at the end are
    cancelled. Raises ``VirtualDeadlockError`` and ``VirtualTimeLimitError`` as described above,
    and whatever the scenario raises.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(limit=limit)) as runner:
        clock = VirtualClock(start, runner.get_loop())
        return runner.run(scenario(clock))


def _task_factory(
    loop: asyncio.AbstractEventLoop, coro: Any, /, **options: Any
) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    serial = loop.next_serial()
    options["name"] = options.get("name") or f"task-{serial}"
    return _SerialTask(coro, serial, loop=loop, **options)


def _described(tasks: set[asyncio.Task[Any]]) -> str:
    lines = sorted(map(_one_line, tasks))
    more = len(lines) - _SHOWN_TASKS
    shown = "".join(f"\n  {line}" for line in lines[:_SHOWN_TASKS])
    return shown + (f"\n  and {more} more" if more > 0 else "") if lines else " none"


def _one_line(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    name = getattr(task.get_coro(), "__qualname__", "?")
    where = f" at line {frames[-1].f_lineno} of {frames[-1].f_code.co_filename}" if frames else ""
    return f"{task.get_name()}: {name}{where}"

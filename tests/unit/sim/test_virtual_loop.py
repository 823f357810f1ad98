from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from persys_core.sim.clock import VirtualClock
from persys_core.sim.loop import (
    VirtualDeadlockError,
    VirtualTimeLimitError,
    run_virtual,
)
from persys_core.testing.virtual import virtual_time

START = datetime(2026, 3, 1, tzinfo=UTC)


def test_waiting_takes_no_time_and_moves_the_clock_exactly() -> None:
    """Twelve hours of sleep end at the start plus twelve hours, to the microsecond."""

    async def scenario(clock: VirtualClock) -> tuple[datetime, float]:
        for _ in range(12 * 360):
            await clock.sleep(timedelta(seconds=10))
        return clock.now(), clock.monotonic()

    assert run_virtual(scenario, start=START) == (START + timedelta(hours=12), 43200.0)


def test_a_sleep_never_ends_early_whatever_fraction_it_starts_from() -> None:
    """A timer that was computed from two instants finds the second one reached."""

    async def scenario(clock: VirtualClock) -> None:
        await asyncio.sleep(0.123456789)
        for microseconds in (1, 3, 7, 333_333, 999_999):
            target = clock.now() + timedelta(microseconds=microseconds)
            await clock.sleep(target - clock.now())
            assert clock.now() == target

    run_virtual(scenario)


def test_timers_fire_in_the_order_of_their_due_time() -> None:
    """Whatever order tasks start in, they wake by due time."""

    async def scenario(clock: VirtualClock) -> list[int]:
        woken: list[int] = []

        async def sleeper(seconds: int) -> None:
            await clock.sleep(timedelta(seconds=seconds))
            woken.append(seconds)

        await asyncio.gather(*map(sleeper, (30, 10, 20)))
        return woken

    assert run_virtual(scenario) == [10, 20, 30]


def test_a_timer_does_not_fire_with_an_earlier_one() -> None:
    """Two timers a tick apart are two instants."""

    async def scenario(clock: VirtualClock) -> list[float]:
        async def sleeper(microseconds: int) -> float:
            await clock.sleep(timedelta(microseconds=microseconds))
            return clock.monotonic()

        return await asyncio.gather(*map(sleeper, (1000, 1001, 1002)))

    assert run_virtual(scenario) == [0.001, 0.001001, 0.001002]


def test_tasks_of_a_group_are_cancelled_in_a_repeatable_order() -> None:
    """Two runs of one program cancel in the same order, though asyncio keeps tasks in a set."""

    async def scenario(clock: VirtualClock) -> list[int]:
        ended: list[int] = []

        async def member(number: int) -> None:
            try:
                await clock.sleep(timedelta(hours=1))
            finally:
                ended.append(number)

        tasks = {asyncio.create_task(member(number)) for number in range(50)}
        await asyncio.wait(tasks, timeout=1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return ended

    assert run_virtual(scenario) == run_virtual(scenario)


def test_a_deadlock_names_the_tasks_that_wait() -> None:
    """When nothing can happen any more the run ends with an error that says who waits."""

    async def scenario(_: VirtualClock) -> None:
        async def waits_for_ever() -> None:
            await asyncio.Event().wait()

        await asyncio.create_task(waits_for_ever(), name="the-lonely-one")

    with pytest.raises(VirtualDeadlockError, match=r"the-lonely-one: .*waits_for_ever at line"):
        run_virtual(scenario)


def test_an_endless_background_loop_does_not_hide_a_hanging_scenario() -> None:
    """With a limit, a scenario that never ends fails although timers keep coming."""

    async def scenario(clock: VirtualClock) -> None:
        async def ticker() -> None:
            while True:
                await clock.sleep(timedelta(seconds=1))

        background = asyncio.create_task(ticker())
        await asyncio.Event().wait()
        background.cancel()

    with pytest.raises(VirtualTimeLimitError, match="ticker"):
        run_virtual(scenario, limit=timedelta(minutes=1))


def test_threads_are_refused() -> None:
    """Work that is handed to a thread fails with a text that says what to do instead."""

    async def scenario(_: VirtualClock) -> None:
        await asyncio.to_thread(len, "x")

    with pytest.raises(RuntimeError, match="in-memory implementation"):
        run_virtual(scenario)


def test_left_over_tasks_are_cancelled_at_the_end() -> None:
    """A background task sees its cancellation when the scenario is over."""
    seen: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def scenario(_: VirtualClock) -> asyncio.Task[None]:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        return task

    run_virtual(scenario)
    assert seen == ["cancelled"]


def test_a_clock_can_be_set_back_while_its_monotonic_side_goes_on() -> None:
    """A step moves the wall time only."""

    async def scenario(clock: VirtualClock) -> None:
        await clock.sleep(timedelta(seconds=5))
        clock.step(timedelta(hours=-1))
        assert clock.now() == START + timedelta(seconds=5) - timedelta(hours=1)
        assert clock.monotonic() == 5.0

    run_virtual(scenario, start=START)


def test_a_start_without_a_time_zone_is_refused() -> None:
    """A naive start fails with a text that asks for an aware one."""

    async def scenario(_: VirtualClock) -> None: ...

    with pytest.raises(ValueError, match="aware"):
        run_virtual(scenario, start=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.fixture
def minutes() -> int:
    return 3


@virtual_time(start=START)
async def test_a_coroutine_test_gets_the_clock_and_its_fixtures(
    minutes: int, clock: VirtualClock
) -> None:
    """The decorator leaves fixtures to pytest and passes the clock itself."""
    await clock.sleep(timedelta(minutes=minutes))
    assert clock.now() == START + timedelta(minutes=3)


@pytest.mark.parametrize("seconds", [1, 2])
@virtual_time()
async def test_a_coroutine_test_may_be_parametrised_and_need_no_clock(seconds: int) -> None:
    """Parameters reach the coroutine as they would a plain test."""
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(seconds)
    assert asyncio.get_running_loop().time() - began == seconds

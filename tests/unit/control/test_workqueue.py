from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys_core.control.workqueue import WorkQueue
from persys_core.sim.clock import VirtualClock
from persys_core.sim.loop import run_virtual
from persys_core.testing.virtual import virtual_time

pytestmark = pytest.mark.slow

Handler: TypeAlias = Callable[[str], Awaitable[None]]
SECOND = timedelta(seconds=1)


class Bench:
    """A queue whose handler takes a second per key, and notes what it did."""

    def __init__(self, clock: VirtualClock, *, workers: int = 1, takes: timedelta = SECOND) -> None:
        self.clock = clock
        self.takes = takes
        self.began: list[tuple[float, str]] = []
        self.ended: list[str] = []
        self.bugs: list[tuple[str, Exception]] = []
        self.at_work: Counter[str] = Counter()
        self.most_at_once = 0
        self.failing: Counter[str] = Counter()
        self.queue: WorkQueue[str] = WorkQueue(
            self.handle, clock, workers=workers, on_bug=self.note_bug
        )

    def note_bug(self, key: str, error: Exception) -> None:
        self.bugs.append((key, error))

    async def handle(self, key: str) -> None:
        self.began.append((self.clock.monotonic(), key))
        self.at_work[key] += 1
        self.most_at_once = max(self.most_at_once, self.at_work.total())
        assert self.at_work[key] == 1
        try:
            await self.clock.sleep(self.takes)
            if self.failing[key] > 0:
                self.failing[key] -= 1
                raise RuntimeError(key)
            self.ended.append(key)
        finally:
            self.at_work[key] -= 1

    async def __aenter__(self) -> Bench:
        self.task = asyncio.create_task(self.queue.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@virtual_time()
async def test_a_key_added_many_times_is_handled_once(clock: VirtualClock) -> None:
    """Many reasons to look are one look."""
    async with Bench(clock) as bench:
        for _ in range(5):
            assert bench.queue.add("a")
        await bench.queue.wait_idle()
        assert bench.ended == ["a"]


@virtual_time()
async def test_a_key_added_while_it_is_handled_is_handled_once_more(clock: VirtualClock) -> None:
    """A change during a look is not lost, and never looked at by two at once."""
    async with Bench(clock, workers=4) as bench:
        bench.queue.add("a")
        await clock.sleep(SECOND / 2)
        for _ in range(3):
            bench.queue.add("a")
        await bench.queue.wait_idle()
        assert bench.began == [(0, "a"), (1, "a")]


@virtual_time()
async def test_at_most_so_many_keys_at_once(clock: VirtualClock) -> None:
    """Concurrency is bounded, and used in full."""
    async with Bench(clock, workers=3) as bench:
        for number in range(9):
            bench.queue.add(f"k{number}")
        await bench.queue.wait_idle()
        assert bench.most_at_once == 3
        assert clock.monotonic() == 3


@virtual_time()
async def test_a_delayed_key_is_not_handled_before_its_time(clock: VirtualClock) -> None:
    """Rule 4 of safety holds at the queue: not a microsecond early, and not late."""
    async with Bench(clock) as bench:
        bench.queue.add("a", not_before=clock.now() + timedelta(seconds=7.000001))
        bench.queue.add_after("b", timedelta(seconds=0.1))
        bench.queue.add("past", not_before=clock.now() - timedelta(hours=1))
        await clock.sleep(timedelta(seconds=20))
        assert [(round(when, 6), key) for when, key in bench.began] == [
            (0, "past"),
            (1, "b"),
            (7.000001, "a"),
        ]


@virtual_time()
async def test_the_earlier_of_two_times_wins(clock: VirtualClock) -> None:
    """A nudge is not held back by a timer, nor a timer put off by a later one."""
    async with Bench(clock) as bench:
        bench.queue.add_after("a", timedelta(seconds=30))
        bench.queue.add_after("a", timedelta(seconds=10))
        bench.queue.add_after("a", timedelta(seconds=50))
        bench.queue.add_after("b", timedelta(seconds=40))
        await clock.sleep(timedelta(seconds=20))
        bench.queue.add("b")
        await clock.sleep(timedelta(minutes=5))
        assert bench.began == [(10, "a"), (20, "b")]


@virtual_time()
async def test_a_key_that_is_due_sooner_than_the_alarm_is_not_late(clock: VirtualClock) -> None:
    """The queue wakes for the earliest key, also where it was added last."""
    async with Bench(clock) as bench:
        bench.queue.add_after("late", timedelta(seconds=30))
        await clock.sleep(SECOND)
        bench.queue.add_after("soon", timedelta(seconds=5))
        await clock.sleep(timedelta(minutes=1))
        assert bench.began == [(6, "soon"), (30, "late")]


@virtual_time()
async def test_a_time_given_while_a_key_is_handled_is_kept(clock: VirtualClock) -> None:
    """A handler can have its own key looked at later."""
    async with Bench(clock) as bench:
        bench.queue.add("a")
        await clock.sleep(SECOND / 2)
        bench.queue.add_after("a", timedelta(seconds=60))
        bench.queue.add_after("a", timedelta(seconds=30))
        await clock.sleep(timedelta(minutes=5))
        assert bench.began == [(0, "a"), (30.5, "a")]


@virtual_time()
async def test_urgent_keys_go_first_and_equals_in_order(clock: VirtualClock) -> None:
    """A smaller priority goes first; a key may become more urgent while it waits."""
    async with Bench(clock) as bench:
        bench.queue.add("first")
        await clock.sleep(SECOND / 2)
        for key in ("a", "b", "c"):
            bench.queue.add(key, priority=5)
        bench.queue.add("urgent", priority=1)
        bench.queue.add("c", priority=0)
        bench.queue.add("b", priority=9)
        await bench.queue.wait_idle()
        assert bench.ended == ["first", "c", "urgent", "a", "b"]


@virtual_time()
async def test_a_bug_stops_nothing_else_and_is_tried_again_later(clock: VirtualClock) -> None:
    """The exception is reported, other keys go on, and the key comes back after 5 s, then 10."""
    async with Bench(clock, workers=2) as bench:
        bench.failing["bad"] = 2
        for key in ("bad", "good", "better"):
            bench.queue.add(key)
        await clock.sleep(timedelta(minutes=1))
        assert bench.ended == ["good", "better", "bad"]
        assert [when for when, key in bench.began if key == "bad"] == [0, 6, 17]
        assert [(key, str(error)) for key, error in bench.bugs] == [("bad", "bad")] * 2
        assert bench.queue.stats().bugs == 2


@virtual_time()
async def test_a_good_look_ends_a_row_of_bugs(clock: VirtualClock) -> None:
    """The delay begins anew once a look ended well."""
    async with Bench(clock) as bench:
        bench.failing["a"] = 1
        bench.queue.add("a")
        await clock.sleep(timedelta(seconds=60))
        bench.failing["a"] = 1
        bench.queue.add("a")
        await clock.sleep(timedelta(seconds=60))
        assert [when for when, _ in bench.began] == [0, 6, 60, 66]


@virtual_time()
async def test_nudges_during_a_bug_do_not_make_a_hot_loop(clock: VirtualClock) -> None:
    """What is added while a look fails waits for the delay like the failed look itself."""
    async with Bench(clock) as bench:
        bench.failing["a"] = 1
        bench.queue.add("a")
        await clock.sleep(SECOND / 2)
        bench.queue.add("a")
        await clock.sleep(timedelta(seconds=60))
        assert [when for when, _ in bench.began] == [0, 6]


@virtual_time()
async def test_a_stray_cancellation_is_a_bug_and_not_an_end(clock: VirtualClock) -> None:
    """A handler that awaits a cancelled future does not vanish with its key."""
    bugs: list[Exception] = []
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gone.cancel()

    async def handle(_: str) -> None:
        await gone

    queue: WorkQueue[str] = WorkQueue(
        handle, clock, workers=1, on_bug=lambda _, error: bugs.append(error)
    )
    task = asyncio.create_task(queue.run())
    queue.add("a")
    await clock.sleep(timedelta(seconds=6))
    assert len(bugs) == 2
    assert not task.done()
    task.cancel()


@virtual_time()
async def test_draining_handles_what_is_ready(clock: VirtualClock) -> None:
    """Ready keys and those added during their look are handled, later ones dropped."""
    async with Bench(clock) as bench:
        bench.queue.add("a")
        bench.queue.add("b")
        bench.queue.add_after("later", timedelta(seconds=3))
        await clock.sleep(SECOND / 2)
        bench.queue.add("a")
        bench.queue.add_after("b", timedelta(seconds=90))
        await bench.queue.stop(drain=True)
        await bench.task
        assert bench.ended == ["a", "b", "a"]
        assert not bench.queue.add("c")


@virtual_time()
async def test_abandoning_lets_the_present_look_end(clock: VirtualClock) -> None:
    """What is being handled comes to its end; nothing else begins."""
    async with Bench(clock, workers=2) as bench:
        for key in ("a", "b", "c"):
            bench.queue.add(key)
        await clock.sleep(SECOND / 2)
        bench.queue.add("a")
        await bench.queue.stop(drain=False)
        await bench.task
        assert bench.ended == ["a", "b"]
        assert clock.monotonic() == 1


@virtual_time()
async def test_cancelling_cancels_the_handlers(clock: VirtualClock) -> None:
    """A leader that lost its lease ends its calls at once, and nothing is left running."""
    async with Bench(clock, workers=2) as bench:
        bench.queue.add("a")
        await clock.sleep(SECOND / 2)
        bench.task.cancel()
        await asyncio.gather(bench.task, return_exceptions=True)
        assert bench.task.cancelled()
        assert bench.ended == []
        assert bench.bugs == []
        assert clock.monotonic() == 0.5
        assert len(asyncio.all_tasks()) == 1


@virtual_time()
async def test_stopping_a_queue_that_never_ran_ends(clock: VirtualClock) -> None:
    """There is nobody to drain it; whoever stops it does not hang."""
    bench = Bench(clock)
    bench.queue.add("a")
    await bench.queue.stop(drain=True)
    assert bench.queue.stats().ready == 0


@virtual_time()
async def test_keys_added_before_the_start_are_handled(clock: VirtualClock) -> None:
    """A queue may be filled before it runs."""
    bench = Bench(clock)
    bench.queue.add("a")
    async with bench:
        await bench.queue.wait_idle()
        assert bench.ended == ["a"]


@virtual_time()
async def test_a_forgotten_key_is_not_handled(clock: VirtualClock) -> None:
    """A deleted workload leaves nothing behind in the queue."""
    async with Bench(clock) as bench:
        bench.queue.add_after("later", timedelta(seconds=5))
        bench.queue.add("first")
        bench.queue.add("ready")
        await clock.sleep(SECOND / 2)
        bench.queue.add("first")
        for key in ("later", "ready", "first"):
            bench.queue.forget(key)
        await clock.sleep(timedelta(minutes=1))
        assert bench.ended == ["first"]


@virtual_time()
async def test_stats_tell_ready_from_delayed(clock: VirtualClock) -> None:
    """The numbers are those of the moment, also for what became due just now."""
    async with Bench(clock) as bench:
        bench.queue.add("a")
        bench.queue.add("b")
        bench.queue.add_after("c", timedelta(seconds=9))
        await clock.sleep(SECOND / 2)
        stats = bench.queue.stats()
        assert (stats.running, stats.ready, stats.delayed, stats.handled) == (1, 1, 1, 0)
        await clock.sleep(timedelta(minutes=1))
        stats = bench.queue.stats()
        assert (stats.running, stats.ready, stats.delayed, stats.handled) == (0, 0, 0, 3)


@virtual_time()
async def test_a_broken_bug_report_ends_the_queue_loudly(clock: VirtualClock) -> None:
    """An error in the callback itself is not swallowed: run raises it."""

    async def handle(_: str) -> None:
        raise RuntimeError("bug")

    def on_bug(_: str, error: Exception) -> None:
        raise LookupError("broken callback") from error

    queue: WorkQueue[str] = WorkQueue(handle, clock, workers=1, on_bug=on_bug)
    queue.add("a")
    with pytest.raises(LookupError, match="broken callback"):
        await queue.run()


@virtual_time()
async def test_a_queue_needs_a_worker(clock: VirtualClock) -> None:
    """Zero workers would handle nothing, for ever."""

    async def handle(_: str) -> None: ...

    with pytest.raises(ValueError, match="workers is 0"):
        WorkQueue(handle, clock, workers=0, on_bug=lambda *_: None)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3000), st.integers(0, 3000)), max_size=40),
    st.integers(1, 3),
)
def test_every_wish_is_followed_by_a_look_and_no_look_comes_too_early(
    adds: list[tuple[int, int, int]], workers: int
) -> None:
    """Over any schedule of adds: no key is lost, none is looked at by two, none too early."""

    async def scenario(clock: VirtualClock) -> None:
        wishes: list[tuple[str, float, float]] = []
        async with Bench(clock, workers=workers, takes=timedelta(milliseconds=700)) as bench:
            for key, pause, delay in adds:
                await clock.sleep(timedelta(milliseconds=pause))
                bench.queue.add_after(f"k{key}", timedelta(milliseconds=delay))
                now = clock.monotonic()
                wishes.append((f"k{key}", now, now + delay / 1000))
            await clock.sleep(timedelta(minutes=1))
            check(bench, wishes)

    def check(bench: Bench, wishes: list[tuple[str, float, float]]) -> None:
        for key, added, _ in wishes:
            assert any(each == key and when >= added - 1e-6 for when, each in bench.began)
        for when, key in bench.began:
            assert any(each == key and due <= when + 1e-6 for each, _, due in wishes)
        assert len(bench.began) <= len(wishes)
        assert bench.most_at_once <= workers

    run_virtual(scenario)

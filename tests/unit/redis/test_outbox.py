"""What waits for Redis is bounded, written in order and once, and its losses are counted (K04)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from attrs import define, field
from structlog.testing import capture_logs

from persys_adapters.redis.outbox import Outbox
from persys_adapters.redis.trouble import Lost, RedisTroubleError, Trouble, TroubleLog
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time

AWAY = RedisTroubleError(Trouble.UNREACHABLE, "no one listens")


@define
class FakeRedis:
    """A sink that fails, refuses or breaks as it is told."""

    written: list[str] = field(factory=list)
    trouble: RedisTroubleError | None = None
    refuses: int = 0
    bugs: int = 0
    unsure: list[bool] = field(factory=list)

    async def write(self, batch: Mapping[str, str], *, unsure: bool) -> int:
        await asyncio.sleep(0)
        self.unsure.append(unsure)
        if self.trouble is not None:
            raise self.trouble
        if self.bugs:
            self.bugs -= 1
            raise KeyError("a bug")
        self.written += batch.values()
        return self.refuses


@define
class Watch:
    """Writes down what it is told."""

    losses: dict[Lost, int] = field(factory=dict)
    troubles: int = 0
    successes: int = 0

    def lost(self, number: int, why: Lost) -> None:
        self.losses[why] = self.losses.get(why, 0) + number

    def troubled(self, error: RedisTroubleError) -> None:
        self.troubles += 1

    def works(self) -> None:
        self.successes += 1


@asynccontextmanager
async def opened(
    redis: FakeRedis, watch: Watch, clock: VirtualClock, capacity: int = 10
) -> AsyncIterator[Outbox[str]]:
    outbox: Outbox[str] = Outbox(redis, clock, watch, capacity, batch=4)
    running = asyncio.create_task(outbox.run())
    try:
        yield outbox
    finally:
        await outbox.close(running)


def fill(outbox: Outbox[str], *numbers: int) -> None:
    for number in numbers:
        outbox.put(f"k{number}", str(number))


@virtual_time()
async def test_all_is_written_in_order(clock: VirtualClock) -> None:
    """Whatever the size of a batch, everything comes once and in the order of putting."""
    redis, watch = FakeRedis(), Watch()
    async with opened(redis, watch, clock) as outbox:
        fill(outbox, *range(10))
        await outbox.drained()
        fill(outbox, 10)
        await outbox.drained()
    assert redis.written == [str(number) for number in range(11)]
    assert watch.losses == {}


@virtual_time()
async def test_the_oldest_go_when_there_is_no_room(clock: VirtualClock) -> None:
    """100,000 items while Redis is away: the newest ten wait, the others are counted, and what
    waited is written when Redis is back."""
    redis, watch = FakeRedis(trouble=AWAY), Watch()
    async with opened(redis, watch, clock) as outbox:
        for start in range(0, 100_000, 1000):
            fill(outbox, *range(start, start + 1000))
            assert len(outbox) <= 10
            await clock.sleep(timedelta(milliseconds=50))
        assert watch.losses == {Lost.QUEUE_FULL: 99_990}
        states = [outbox.is_away]
        redis.trouble = None
        await outbox.drained()
        states.append(outbox.is_away)
    assert states == [True, False]
    assert redis.written == [str(number) for number in range(99_990, 100_000)]


@virtual_time()
async def test_a_later_try_knows_that_it_is_one(clock: VirtualClock) -> None:
    """After a failure the sink is told to look for what it may have written already."""
    redis, watch = FakeRedis(trouble=AWAY), Watch()
    async with opened(redis, watch, clock) as outbox:
        fill(outbox, 1)
        await clock.sleep(timedelta(milliseconds=50))
        redis.trouble = None
        await outbox.drained()
        fill(outbox, 2)
        await outbox.drained()
    assert redis.unsure == [False, True, False]


@virtual_time()
async def test_one_key_waits_once(clock: VirtualClock) -> None:
    """A later value takes the place of an earlier one that waits, also of one that failed."""
    redis, watch = FakeRedis(trouble=AWAY), Watch()
    async with opened(redis, watch, clock) as outbox:
        outbox.put("a", "old")
        outbox.put("b", "b")
        await clock.sleep(timedelta(milliseconds=50))
        outbox.put("a", "new")
        redis.trouble = None
        await outbox.drained()
    assert redis.written == ["b", "new"]
    assert watch.losses == {}


@virtual_time()
async def test_refusals_and_bugs_are_counted_and_hold_nothing_up(clock: VirtualClock) -> None:
    """What Redis refuses for good, and a batch that cannot be made, are lost; the rest goes on."""
    redis, watch = FakeRedis(refuses=1, bugs=1), Watch()
    async with opened(redis, watch, clock) as outbox:
        fill(outbox, 1, 2)
        await outbox.drained()
        fill(outbox, 3)
        await outbox.drained()
    assert redis.written == ["3"]
    assert watch.losses == {Lost.BUG: 2, Lost.REFUSED: 1}


@virtual_time()
async def test_the_end_writes_what_waits_and_counts_the_rest(clock: VirtualClock) -> None:
    """Closing gives a Redis that works a moment; one that is away is not waited for."""
    redis, watch = FakeRedis(), Watch()
    async with opened(redis, watch, clock) as outbox:
        fill(outbox, *range(10))
    assert len(redis.written) == 10
    away, counted = FakeRedis(trouble=AWAY), Watch()
    async with opened(away, counted, clock) as outbox:
        fill(outbox, *range(10))
        await clock.sleep(timedelta(milliseconds=50))
    assert counted.losses == {Lost.STOPPED: 10}


@virtual_time()
async def test_an_outage_is_one_line_a_minute(clock: VirtualClock) -> None:
    """An hour of failures and losses is at most one line a minute, with the number lost; then
    one line says that it is over."""
    trouble = TroubleLog(clock, "writing events")
    with capture_logs() as lines:
        for _ in range(3600):
            trouble.troubled(AWAY)
            trouble.lost(3, "queue_full")
            await clock.sleep(timedelta(seconds=1))
        assert 59 <= len(lines) <= 61
        assert all(line["log_level"] == "warning" for line in lines)
        assert sum(line["lost"] for line in lines) >= 3 * 3500
        await clock.sleep(timedelta(seconds=61))
        for _ in range(100):
            trouble.works()
    assert [line["log_level"] for line in lines[-2:]] == ["warning", "info"]
    assert sum(line["lost"] for line in lines) == 3 * 3600

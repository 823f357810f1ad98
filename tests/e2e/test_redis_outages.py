"""Events and telemetry while Redis is full, hung, refusing, gone, or fails over (K02, K04)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import define, evolve, field
from structlog.testing import capture_logs

from persys_adapters.redis.address import RedisTarget
from persys_adapters.redis.event_log import WAITING_AT_MOST, EventOptions, RedisEventLog
from persys_adapters.redis.telemetry import RedisTelemetry, TelemetryOptions
from persys_adapters.system_clock import SystemClock
from persys_core.model.event import Event, EventFilter, EventType
from persys_core.model.resources import Resources
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.ports.observer import Metric, NullObserver
from tests.e2e.processes import eventually
from tests.servers.redis import RedisServer, redis_server, sentinels

pytestmark = pytest.mark.slow

ALL = EventFilter()
AT = datetime(2026, 1, 1, tzinfo=UTC)
QUICK = EventOptions(wait=timedelta(milliseconds=300))
PATIENCE = 60.0


@define
class Counts(NullObserver):
    """An observer that counts by metric and reason."""

    by: dict[tuple[Metric, str], int] = field(factory=dict)

    def increment(self, metric: Metric, labels: Mapping[str, str], by: int = 1) -> None:
        key = (metric, labels.get("reason", labels.get("category", "")))
        self.by[key] = self.by.get(key, 0) + by

    def record(self, metric: Metric, seconds: float, labels: Mapping[str, str]) -> None:
        """Nothing is timed."""


@asynccontextmanager
async def event_log(
    target: RedisTarget, options: EventOptions = QUICK, counts: Counts | None = None
) -> AsyncIterator[RedisEventLog]:
    async with AsyncExitStack() as stack:
        yield await RedisEventLog.open(target, SystemClock(), counts or Counts(), stack, options)


def append(log: RedisEventLog, *numbers: int) -> None:
    for number in numbers:
        log.append(Event(EventType.NODE_LOST, AT, node_id="n", details={"number": str(number)}))


def numbers(events: object) -> list[int]:
    assert isinstance(events, list)
    return [int(each.details["number"]) for each in events if each.type is EventType.NODE_LOST]


async def flushed(log: RedisEventLog) -> None:
    async with asyncio.timeout(PATIENCE):
        await log.flushed()


@define
class Reading:
    """A tail that is read in the background."""

    seen: list[Event] = field(factory=list)
    ended: bool = False

    def has(self, *wanted: int) -> bool:
        return set(wanted) <= set(numbers(self.seen))


@asynccontextmanager
async def reading(log: RedisEventLog, after_id: str = "") -> AsyncIterator[Reading]:
    kept = Reading()

    async def read() -> None:
        async with aclosing(log.tail(ALL, after_id)) as tail:  # type: ignore[type-var]
            async for event in tail:
                kept.seen.append(event)
        kept.ended = True

    task = asyncio.create_task(read())
    try:
        yield kept
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
async def test_a_full_redis_costs_events_and_nothing_else(tmp_path: Path) -> None:
    """K04: 100,000 events into a Redis that is full: the number that waits is bounded, every loss
    is counted by its reason; with room again the newest are there, and before them that others
    are not."""
    counts = Counts()
    options = EventOptions(max_entries=50_000, wait=timedelta(milliseconds=300))
    async with (
        redis_server(tmp_path) as server,
        event_log(server.target, options, counts) as log,
        server.client() as redis,
    ):
        append(log, 0)
        await flushed(log)
        await redis.config_set("maxmemory", "1")
        for start in range(1, 100_001, 1000):
            append(log, *range(start, start + 1000))
            assert log.waiting <= WAITING_AT_MOST
            await asyncio.sleep(0)
        lost = 100_000 - WAITING_AT_MOST
        await eventually(lambda: log.is_away, "the log knows that it cannot write")
        assert counts.by[Metric.EVENTS_DROPPED, "queue_full"] == lost
        assert counts.by[Metric.STORE_WRITES, "event_dropped"] == lost
        assert numbers(await log.list(ALL)) == [0]
        await redis.config_set("maxmemory", "0")
        await flushed(log)
        kept = list(await log.list(ALL))
        # What was on its way when the queue was full is kept before what is newer.
        assert len(numbers(kept)) == 1 + WAITING_AT_MOST
        assert numbers(kept) == sorted(set(numbers(kept)))
        assert numbers(kept)[-9000:] == list(range(91_001, 100_001))
        assert kept[1].type is EventType.EVENTS_LOST
        assert kept[1].details == {"dropped": str(lost)}


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_hung_redis_gets_every_event_once(tmp_path: Path, kind: str) -> None:
    """K04: while Redis hangs, appending takes no time and listing answers; what was sent into the
    hang and what waited is there afterwards, once each, for readers and for tails."""
    async with (
        redis_server(tmp_path, kind=kind) as server,
        event_log(server.target) as log,
        reading(log) as tail,
    ):
        append(log, 1)
        await flushed(log)
        server.pause()
        for number in range(2, 400):
            append(log, number)
        await eventually(lambda: log.is_away, "the log knows that it cannot write", PATIENCE)
        append(log, 400)
        assert await log.list(ALL) == []
        server.resume()
        await flushed(log)
        assert numbers(await log.list(ALL)) == list(range(1, 401))
        await eventually(lambda: tail.has(*range(1, 401)), "the tail has all", PATIENCE)
        assert numbers(tail.seen) == list(range(1, 401))


@pytest.mark.asyncio
async def test_a_redis_that_comes_back_empty_is_told_as_a_gap(tmp_path: Path) -> None:
    """Killed and started anew without its data: a tail goes on by itself, is told that events may
    be missing, and an id from before is a gap."""
    async with (
        redis_server(tmp_path) as server,
        event_log(server.target) as log,
        reading(log) as tail,
    ):
        append(log, 1, 2)
        await flushed(log)
        before = (await log.list(ALL))[-1].id
        await eventually(lambda: tail.has(1, 2), "the tail has begun", PATIENCE)
        await server.kill()
        await eventually(lambda: log.is_away, "the log knows that it cannot read", PATIENCE)
        append(log, 3)
        assert await log.list(ALL) == []
        await server.start()
        await flushed(log)
        append(log, 4)
        await eventually(lambda: tail.has(1, 2, 4), "the tail goes on", PATIENCE)
        kinds = [event.type for event in tail.seen]
        assert EventType.EVENTS_LOST in kinds
        assert numbers(await log.list(ALL)) == [3, 4]
        async with reading(log, before) as again:
            await eventually(lambda: again.has(3, 4), "all that is kept", PATIENCE)
            assert again.seen[0].type is EventType.EVENTS_LOST


@pytest.mark.asyncio
async def test_a_replica_starts_without_redis(tmp_path: Path) -> None:
    """Redis comes later: what was appended before is kept and shown, and tails begin."""
    async with redis_server(tmp_path) as server:
        await server.kill()
        async with event_log(server.target) as log, reading(log) as tail:
            append(log, 1)
            assert await log.list(ALL) == []
            await eventually(lambda: log.is_away, "the log knows", PATIENCE)
            await server.start()
            await flushed(log)
            assert numbers(await log.list(ALL)) == [1]
            await eventually(lambda: tail.has(1), "the tail has begun", PATIENCE)


@pytest.mark.asyncio
async def test_a_wrong_password_is_told_without_it(tmp_path: Path) -> None:
    """A04: the log says that access was denied and what to check, and no password; once it is
    right at Redis, what waited is written."""
    async with redis_server(tmp_path, password="s3cr3t-right") as server:
        target = evolve(server.target, password="s3cr3t-wrong")
        with capture_logs() as lines:
            async with event_log(target) as log:
                append(log, 1)
                await eventually(lambda: log.is_away, "the log knows", PATIENCE)
                await eventually(lambda: len(lines) >= 2, "it is said", PATIENCE)
                async with server.client() as redis:
                    await redis.config_set("requirepass", "s3cr3t-wrong")
                    await flushed(log)
                    assert numbers(await log.list(ALL)) == [1]
        assert any("REDIS_PASSWORD" in line.get("advice", "") for line in lines)
        assert "s3cr3t" not in str(lines)


@pytest.mark.asyncio
async def test_a_key_of_another_kind_loses_events_and_holds_nothing_up(tmp_path: Path) -> None:
    """What Redis refuses for good is counted once per event, and told in the stream once there
    is one."""
    counts = Counts()
    async with (
        redis_server(tmp_path) as server,
        server.client() as redis,
    ):
        await redis.set("scheduler:events", "a string")
        async with event_log(server.target, QUICK, counts) as log:
            append(log, 1, 2)
            await eventually(lambda: log.waiting == 0, "nothing waits", PATIENCE)
            assert counts.by[Metric.EVENTS_DROPPED, "refused"] == 2
            assert await log.list(ALL) == []
            await redis.delete("scheduler:events")
            append(log, 3)
            await flushed(log)
            lost, kept = await log.list(ALL)
            assert (lost.details, numbers([kept])) == ({"dropped": "2"}, [3])


@pytest.mark.asyncio
async def test_fifty_tails_wait_on_one_connection(tmp_path: Path) -> None:
    """K02: fifty readers use one waiting connection and disturb no writer; an idle stream ends
    nobody's reading, however many waits pass."""
    async with (
        redis_server(tmp_path) as server,
        event_log(server.target) as log,
        server.client() as redis,
        AsyncExitStack() as stack,
    ):
        tails = [await stack.enter_async_context(reading(log)) for _ in range(50)]
        await flushed(log)

        async def waits() -> int:
            return int(
                (await redis.info("commandstats")).get("cmdstat_xread", {"calls": 0})["calls"]
            )

        begun = await waits()
        async with asyncio.timeout(PATIENCE):
            while await waits() < begun + 4:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not log.is_away
        assert (await redis.info("clients"))["blocked_clients"] == 1
        assert len(await redis.client_list()) <= 4
        append(log, 1)
        await eventually(lambda: all(each.has(1) for each in tails), "everyone has it", PATIENCE)


@pytest.mark.asyncio
async def test_a_wait_longer_than_the_patience_is_no_trouble(tmp_path: Path) -> None:
    """K02: a read that blocks for longer than an answer may take otherwise is not taken for a
    broken connection."""
    options = EventOptions(wait=timedelta(seconds=3))
    async with (
        redis_server(tmp_path) as server,
        event_log(server.target, options) as log,
        server.client() as redis,
    ):
        await flushed(log)
        [reader] = [each["id"] for each in await redis.client_list() if each["cmd"] == "xread"]
        async with asyncio.timeout(PATIENCE):
            while (await redis.info("commandstats"))["cmdstat_xread"]["calls"] < 3:
                assert not log.is_away
                await asyncio.sleep(0.1)
        assert reader in [each["id"] for each in await redis.client_list()]


@pytest.mark.asyncio
async def test_events_survive_a_failover(tmp_path: Path) -> None:
    """Through Sentinel: the master dies, the replica takes over, and both what was written before
    and what waited meanwhile is there, once; a tail goes on."""
    async with (
        sentinels(tmp_path) as cluster,
        event_log(cluster.target) as log,
        reading(log) as tail,
    ):
        append(log, 1)
        await flushed(log)
        await replicated(cluster.replica, 1)
        await eventually(lambda: tail.has(1), "the tail has begun", PATIENCE)
        await cluster.master.kill()
        append(log, 2, 3)
        await cluster.failed_over()
        await flushed(log)
        assert numbers(await log.list(ALL)) == [1, 2, 3]
        await eventually(lambda: tail.has(1, 2, 3), "the tail goes on", PATIENCE)
        assert numbers(tail.seen) == [1, 2, 3]


async def replicated(replica: RedisServer, length: int) -> None:
    """Wait until the replica has so many events."""
    async with replica.client() as redis, asyncio.timeout(PATIENCE):
        while await redis.xlen("scheduler:events") < length:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def sample(workload_id: str = "w1") -> WorkloadUsage:
    return WorkloadUsage(workload_id, "n1", "container", 1.5, 1, 2, 3, 4, 5, AT, "docker-stats")


FACTS = {"action": "Assign", "success": "true", "reason": "r", "attemptedAt": "t"}


@pytest.mark.asyncio
async def test_telemetry_lies_under_the_known_keys(tmp_path: Path) -> None:
    """Every value ends by itself; the history has changed outcomes only and is bounded; the meter
    gets each sample; what is forgotten is gone."""
    options = TelemetryOptions(ttl=timedelta(seconds=100), history_entries=3)
    async with (
        redis_server(tmp_path) as server,
        server.client() as redis,
        AsyncExitStack() as stack,
    ):
        telemetry = await RedisTelemetry.open(
            server.target, SystemClock(), Counts(), stack, options
        )
        telemetry.record_node_usage(NodeUsage("n1", Resources.of(cpu_millicores=5), AT))
        telemetry.record_workload_usage(sample())
        for number in range(5):
            telemetry.record_reconciliation(f"w{number}", FACTS)
            telemetry.record_reconciliation(f"w{number}", FACTS)
        async with asyncio.timeout(PATIENCE):
            await telemetry.flushed()
        keys = set(await redis.keys("*"))
        assert {
            "reconciliation:w1", "workload:w1:reconcile_status", "reconciliation:history",
            "persys:usage:node:n1", "persys:usage:workload:w1", "persys:usage:stream",
        } <= keys  # fmt: skip
        for key in keys - {"persys:usage:stream"}:
            assert 0 < await redis.ttl(key) <= 100
        history = await redis.lrange("reconciliation:history", 0, -1)
        assert [str(line).partition(",")[0] for line in history] == [
            f'{{"workloadId":"w{number}"' for number in (4, 3, 2)
        ]
        metered = await redis.xrange("persys:usage:stream")
        assert metered is not None
        [(_, entry)] = metered
        assert set(entry or ()) == {
            "event_id", "node_id", "workload_id", "revision_id", "reported_at", "payload",
        }  # fmt: skip
        telemetry.forget_workload("w1")
        async with asyncio.timeout(PATIENCE):
            await telemetry.flushed()
        assert not [key for key in await redis.keys("*") if "w1" in key]


@pytest.mark.asyncio
async def test_outcomes_go_to_the_fallback_once_each(tmp_path: Path) -> None:
    """K04: while Redis is away, also those that waited already; never one per attempt, and none
    once Redis is back."""
    told: list[tuple[str, str]] = []
    async with redis_server(tmp_path) as server, AsyncExitStack() as stack:
        telemetry = await RedisTelemetry.open(
            server.target,
            SystemClock(),
            Counts(),
            stack,
            fallback=lambda workload, facts: told.append((workload, facts["action"])),
        )
        telemetry.record_reconciliation("w1", FACTS)
        async with asyncio.timeout(PATIENCE):
            await telemetry.flushed()
        assert told == []
        await server.kill()
        telemetry.record_reconciliation("w2", FACTS)
        await eventually(lambda: ("w2", "Assign") in told, "what waited is told", PATIENCE)
        for _ in range(1000):
            telemetry.record_reconciliation("w2", FACTS)
            telemetry.record_reconciliation("w3", FACTS)
        telemetry.record_reconciliation("w3", {**FACTS, "action": "NoAction"})
        assert told == [("w2", "Assign"), ("w3", "Assign"), ("w3", "NoAction")]
        await server.start()
        async with asyncio.timeout(PATIENCE):
            await telemetry.flushed()
        telemetry.record_reconciliation("w4", FACTS)
        assert len(told) == 3

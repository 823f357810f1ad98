"""The event log and the telemetry in Redis keep their contracts, on every kind of server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from persys_adapters.redis.address import RedisTarget
from persys_adapters.redis.event_log import EventOptions, RedisEventLog
from persys_adapters.redis.telemetry import RedisTelemetry
from persys_adapters.system_clock import SystemClock
from persys_core.ports.observer import NullObserver
from persys_core.testing.event_log import EventLogContract, Flush
from persys_core.testing.telemetry import TelemetryContract
from tests.servers.redis import redis_server, sentinels, tls_files, tls_front

# Redis trims whole nodes of a stream, of at most 100 entries: so many more may be there.
MAX_ENTRIES = 20
CAPACITY = MAX_ENTRIES + 100

PLACES = ("redis", "valkey", "tls", "sentinel")


@pytest_asyncio.fixture(params=PLACES)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RedisTarget]:
    async with AsyncExitStack() as stack:
        match request.param:
            case "sentinel":
                cluster = await stack.enter_async_context(sentinels(tmp_path))
                yield cluster.target
            case "tls":
                secured = redis_server(tmp_path / "tls", username="persys", password="s3cret")
                front = tls_front(await stack.enter_async_context(secured), tls_files(tmp_path))
                yield await stack.enter_async_context(front)
            case kind:
                server = redis_server(tmp_path / "plain", kind=kind)
                yield (await stack.enter_async_context(server)).target


class TestRedisEventLog(EventLogContract):
    @pytest.fixture
    def capacity(self) -> int:
        return CAPACITY

    @pytest_asyncio.fixture
    async def log(self, target: RedisTarget) -> AsyncIterator[RedisEventLog]:
        options = EventOptions(MAX_ENTRIES, wait=timedelta(milliseconds=500))
        async with AsyncExitStack() as stack:
            yield await RedisEventLog.open(target, SystemClock(), NullObserver(), stack, options)

    @pytest.fixture
    def flush(self, log: RedisEventLog) -> Flush:
        async def flush() -> None:
            async with asyncio.timeout(30):
                await log.flushed()

        return flush


class TestRedisTelemetry(TelemetryContract):
    @pytest_asyncio.fixture
    async def telemetry(self, target: RedisTarget) -> AsyncIterator[RedisTelemetry]:
        async with AsyncExitStack() as stack:
            yield await RedisTelemetry.open(target, SystemClock(), NullObserver(), stack)

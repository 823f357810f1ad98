"""The event log and the telemetry in Redis keep their contracts, on every kind of server."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import pytest_asyncio

from persys_adapters.redis.address import DEFAULT_PORT, Address, RedisTarget, RedisTls
from persys_adapters.redis.event_log import EVENTS_KEY, EventOptions, RedisEventLog
from persys_adapters.redis.telemetry import RedisTelemetry, TelemetryOptions
from persys_adapters.system_clock import SystemClock
from persys_core.ports.observer import NullObserver
from persys_core.testing.event_log import EventLogContract, Flush
from persys_core.testing.telemetry import TelemetryContract
from tests.servers.redis import redis_server, sentinels, tls_files, tls_front

# Redis trims whole nodes of a stream, of at most 100 entries: so many more may be there.
MAX_ENTRIES = 20
CAPACITY = MAX_ENTRIES + 100

PLACES = ("redis", "valkey", "system", "tls", "sentinel")


def target_of(url: str) -> RedisTarget:
    """The server of `redis://[user:password@]host[:port][/db]`, with TLS for `rediss://`."""
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
        pytest.fail(f"--redis {url}: give redis://[user:password@]host[:port][/db]", pytrace=False)
    return RedisTarget(
        address=Address(parts.hostname, parts.port or DEFAULT_PORT),
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        db=int(parts.path.strip("/") or 0),
        tls=RedisTls() if parts.scheme == "rediss" else None,
    )


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """On the user's own server every key stands apart, and ends by itself."""
    own = request.config.getoption("--redis")
    return f"persys-contract-{uuid.uuid4().hex[:12]}:" if own else ""


@pytest_asyncio.fixture(params=PLACES)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RedisTarget]:
    own: str = request.config.getoption("--redis")
    if own:
        if request.param != "redis":
            pytest.skip("the server is the user's own")
        yield target_of(own)
        return
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
    async def log(self, target: RedisTarget, prefix: str) -> AsyncIterator[RedisEventLog]:
        options = EventOptions(
            MAX_ENTRIES,
            timedelta(minutes=5),
            wait=timedelta(milliseconds=500),
            key=prefix + EVENTS_KEY,
        )
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
    async def telemetry(self, target: RedisTarget, prefix: str) -> AsyncIterator[RedisTelemetry]:
        async with AsyncExitStack() as stack:
            options = TelemetryOptions(timedelta(minutes=5), meter_stream="", prefix=prefix)
            yield await RedisTelemetry.open(target, SystemClock(), NullObserver(), stack, options)

"""Replicas that share a Redis, seen through gRPC: one history, many watchers, no dependence."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc.aio
import pytest
from attrs import define, field

from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2 as pb
from tests.e2e.processes import (
    agents,
    client,
    container,
    ctl,
    eventually,
    quick_node,
    server,
    watching,
)
from tests.servers.redis import redis_server

pytestmark = pytest.mark.slow

PATIENCE = 60.0
WATCHERS = 300
CHANNELS = 6


@define
class Seen:
    """The ids that each watcher saw of the events asked for."""

    by_watcher: list[list[str]] = field(factory=list)


async def watch_into(
    stack: AsyncExitStack, address: str, request: pb.WatchEventsRequest, number: int
) -> Seen:
    """``number`` watchers, over a few connections."""
    seen = Seen()
    stubs = []
    for _ in range(CHANNELS):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        channel = grpc.aio.insecure_channel(address, options=options)
        stubs.append(agent_control_stub(await stack.enter_async_context(channel)))

    async def watch(ids: list[str], stub: object) -> None:
        async for event in stub.WatchEvents(request):  # type: ignore[attr-defined]
            ids.append(event.id)

    for each in range(number):
        seen.by_watcher.append([])
        task = asyncio.create_task(watch(seen.by_watcher[-1], stubs[each % CHANNELS]))
        stack.callback(task.cancel)
    return seen


@pytest.mark.asyncio
async def test_two_replicas_show_one_history_to_hundreds_of_watchers(tmp_path: Path) -> None:
    """What one replica does is seen at the other: listed in the same order under the same ids, by
    three hundred watchers on one reading connection, each event once; and an id from one resumes
    at the other."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(tmp_path / "redis"))
        place = f"127.0.0.1:{redis.port}"
        one, other = [
            await stack.enter_async_context(
                server(tmp_path / name, PERSYS_STORE="memory", REDIS_ADDR=place)
            )
            for name in ("a", "b")
        ]
        stub = await stack.enter_async_context(client(one.address))
        far = await stack.enter_async_context(client(other.address))
        await stack.enter_async_context(agents(one.address, quick_node("n1")))
        wanted = pb.WatchEventsRequest(type="WorkloadRunning")
        seen = await watch_into(stack, other.address, wanted, WATCHERS)
        for number in range(5):
            await stub.ApplyWorkload(container(f"w{number}"), timeout=10)
        await eventually(
            lambda: all(len(ids) == 5 for ids in seen.by_watcher), "everyone saw all", PATIENCE
        )
        [ids] = {tuple(ids) for ids in seen.by_watcher}
        listed = pb.ListEventsRequest(type="WorkloadRunning")
        for replica in (stub, far):
            answer = await replica.ListEvents(listed, timeout=10)
            assert tuple(event.id for event in answer.events) == ids
        async with redis.client() as looking:
            clients = await looking.client_list()
            assert (await looking.info("clients"))["blocked_clients"] == 2
        # Two replicas: a reader, a writer of events, one of telemetry, four for lists; and us.
        assert len(clients) <= 2 * 7 + 1
        resumed = await watch_into(
            stack, one.address, pb.WatchEventsRequest(type="WorkloadRunning", after_id=ids[2]), 1
        )
        await eventually(lambda: resumed.by_watcher == [list(ids[3:])], "resumed", PATIENCE)


@pytest.mark.asyncio
async def test_a_hung_redis_delays_no_request(tmp_path: Path) -> None:
    """K04: with Redis stopped in its tracks, workloads are applied and started as ever; the server
    says so in one line; after that all events are there."""
    async with (
        redis_server(tmp_path / "redis") as redis,
        server(tmp_path, REDIS_ADDR=f"127.0.0.1:{redis.port}") as running,
        agents(running.address, quick_node("n1")),
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        assert await eye.until(lambda seen: len(seen.nodes) == 1, 20)
        await stub.ApplyWorkload(container("warm"), timeout=10)
        redis.pause()
        slowest = 0.0
        for number in range(20):
            begun = time.monotonic()
            answer = await stub.ApplyWorkload(container(f"w{number}"), timeout=10)
            slowest = max(slowest, time.monotonic() - begun)
            assert answer.success, answer.error_message
        # An answer that waited for Redis would take its patience of two seconds.
        assert slowest < 1.5

        async def all_run() -> bool:
            listed = await stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=10)
            return sum(each.status == "Running" for each in listed.workloads) == 21

        async with asyncio.timeout(PATIENCE):
            while not await all_run():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await running.says("Redis does not do its part")
        listed = await stub.ListEvents(pb.ListEventsRequest(), timeout=15)
        assert not listed.events
        redis.resume()

        async def running_events() -> list[str]:
            request = pb.ListEventsRequest(type="WorkloadRunning")
            answer = await stub.ListEvents(request, timeout=15)
            return sorted(event.workload_id for event in answer.events)

        expected = sorted(["warm", *(f"w{number}" for number in range(20))])
        async with asyncio.timeout(PATIENCE):
            while await running_events() != expected:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert running.text.count("Redis does not do its part") <= 4


@pytest.mark.asyncio
async def test_reconciliation_and_usage_reach_redis(tmp_path: Path) -> None:
    """What the reconciler did and what agents measured lies under the known keys, with a life of
    its own; after a deletion nothing of the workload is left (reference defect B6)."""
    async with (
        redis_server(tmp_path / "redis", username="persys", password="s3cret-XYZ") as redis,
        server(
            tmp_path,
            REDIS_ADDR=f"127.0.0.1:{redis.port}",
            REDIS_USERNAME="persys",
            REDIS_PASSWORD="s3cret-XYZ",
        ) as running,
        agents(running.address, quick_node("n1")),
        client(running.address) as stub,
        redis.client() as looking,
    ):
        await stub.ApplyWorkload(container("web"), timeout=10)

        async def there(*keys: str) -> bool:
            return await looking.exists(*keys) == len(keys)

        own = ("reconciliation:web", "workload:web:reconcile_status", "persys:usage:workload:web")
        async with asyncio.timeout(PATIENCE):
            while not await there(  # noqa: ASYNC110
                *own, "reconciliation:history", "persys:usage:node:n1", "persys:usage:stream"
            ):
                await asyncio.sleep(0.1)
        for key in own:
            assert 0 < await looking.ttl(key) <= 24 * 3600
        deleted = await ctl(running.address, "delete", "workload", "web", "--wait")
        assert deleted.code == 0, deleted.err
        async with asyncio.timeout(PATIENCE):
            while await looking.exists(*own):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert "s3cret-XYZ" not in running.text

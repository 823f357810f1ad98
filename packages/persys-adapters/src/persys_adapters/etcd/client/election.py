"""Elections, in the protocol that etcd's own concurrency package and etcdctl speak.

A candidate's key is ``prefix/{lease id in hex}``, bound to its lease; the key with the lowest
creation revision is the leader's. Decided here: a key in a folder below is another election's; a
candidate watches the whole prefix, so that it learns of the loss of its own key as well as of the
others'; its fence is its key's creation revision, and `LeaderKey.fence` stands in every transaction
of a leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress

from attrs import frozen

from persys_adapters.etcd.client.client import EtcdClient
from persys_adapters.etcd.client.errors import EtcdError, LeadershipLostError, LeaseLostError
from persys_adapters.etcd.client.values import (
    Compare,
    DeleteKey,
    GetKey,
    KeyValue,
    Put,
    RangeResult,
    WatchBatch,
    end_of_prefix,
)

__all__ = ["LeaderKey", "campaign", "candidate_key", "leader", "observe", "proclaim", "resign"]

_RESIGNING_SECONDS = 1.0
"""So long a campaign that ends is made to wait for etcd: the lease sees to the rest."""


@frozen
class LeaderKey:
    """The key of a candidate; as long as `fence` holds it is the one that was campaigned with."""

    key: bytes
    create_revision: int
    lease_id: int

    @property
    def fence(self) -> Compare:
        """What every transaction of this leader compares."""
        return Compare(self.key, create_revision=self.create_revision)


def candidate_key(prefix: bytes, lease_id: int) -> bytes:
    """Where a candidate stands; ``prefix`` is given without a slash at its end."""
    return b"%s/%x" % (prefix, lease_id)


async def campaign(
    client: EtcdClient,
    prefix: bytes,
    lease_id: int,
    value: bytes,
    *,
    session_lost: asyncio.Event | None = None,
) -> LeaderKey:
    """Stand for election and return when elected; this may take for ever.

    `LeaseLostError`: the candidate's key went with its lease, or ``session_lost`` was set, by
    whoever keeps the lease alive. Whenever this does not return, cancellation included, the
    candidate's key is removed as far as etcd can be reached; the lease sees to the rest. After an
    `EtcdError` it may be called again with the same lease; a key that stands keeps its place.
    """
    mine = await _stand(client, prefix, lease_id, value)
    waiting = asyncio.create_task(_elected(client, prefix, mine))
    losing = asyncio.create_task((session_lost or asyncio.Event()).wait())
    try:
        done, _ = await asyncio.wait({waiting, losing}, return_when=asyncio.FIRST_COMPLETED)
        if losing in done:
            raise LeaseLostError("the session was lost while it campaigned")
        waiting.result()
    except BaseException:
        waiting.cancel()
        with suppress(EtcdError, TimeoutError):
            async with asyncio.timeout(_RESIGNING_SECONDS):
                await resign(client, mine)
        raise
    finally:
        for task in (waiting, losing):
            task.cancel()
        await asyncio.gather(waiting, losing, return_exceptions=True)
    return mine


async def proclaim(client: EtcdClient, mine: LeaderKey, value: bytes) -> None:
    """Change the value that others see. `LeadershipLostError`: the key is no longer ours."""
    done = await client.txn([mine.fence], [Put(mine.key, value, mine.lease_id)])
    if not done.succeeded:
        raise LeadershipLostError(f"the leader's key {mine.key!r} is not that of this campaign")


async def resign(client: EtcdClient, mine: LeaderKey) -> bool:
    """Give the leadership, or the candidacy, up; false if it was lost already."""
    done = await client.txn([mine.fence], [DeleteKey(mine.key)])
    return done.succeeded


async def leader(client: EtcdClient, prefix: bytes) -> KeyValue | None:
    """The leader's key as it stands, if there is a leader."""
    return _first(prefix, (await _candidates(client, prefix)).kvs)


async def observe(client: EtcdClient, prefix: bytes) -> AsyncGenerator[KeyValue | None, None]:
    """The leader's key now, and again whenever leader or value changed; ``None`` while nobody is.

    Endless; states that lasted only a moment may be left out.
    """
    shown: KeyValue | None = None
    is_first = True
    while True:
        found = await _candidates(client, prefix)
        standing = {kv.key: kv for kv in found.kvs}
        async with aclosing(_changes(client, prefix, standing, found.revision)) as changes:
            async for _ in changes:
                current = _first(prefix, standing.values())
                if is_first or current != shown:
                    shown, is_first = current, False
                    yield current


async def _stand(client: EtcdClient, prefix: bytes, lease_id: int, value: bytes) -> LeaderKey:
    key = candidate_key(prefix, lease_id)
    done = await client.txn(
        [Compare(key, create_revision=0)], [Put(key, value, lease_id)], [GetKey(key)]
    )
    if done.succeeded:
        return LeaderKey(key, done.revision, lease_id)
    [found] = done.responses
    assert isinstance(found, RangeResult)
    [kv] = found.kvs
    mine = LeaderKey(key, kv.create_revision, lease_id)
    if kv.value != value:
        await proclaim(client, mine, value)
    return mine


async def _elected(client: EtcdClient, prefix: bytes, mine: LeaderKey) -> None:
    while True:
        found = await _candidates(client, prefix)
        standing = {kv.key: kv for kv in found.kvs}
        async with aclosing(_changes(client, prefix, standing, found.revision)) as changes:
            async for _ in changes:
                ours = standing.get(mine.key)
                if ours is None or ours.create_revision != mine.create_revision:
                    raise LeaseLostError("the candidate's key is gone, and its lease with it")
                first = _first(prefix, standing.values())
                if first is not None and first.key == mine.key:
                    return


async def _changes(
    client: EtcdClient, prefix: bytes, standing: dict[bytes, KeyValue], revision: int
) -> AsyncGenerator[None, None]:
    """Keep ``standing``, as of ``revision``, up to date, and yield at first and at each change;
    ends when it has to be listed again."""
    yield
    start, end = _range_of(prefix)
    async with aclosing(client.watch(start, end, revision + 1)) as watching:
        async for item in watching:
            if not isinstance(item, WatchBatch):
                return
            for event in item.events:
                if event.is_delete:
                    standing.pop(event.key, None)
                else:
                    standing[event.key] = event.kv
            yield


async def _candidates(client: EtcdClient, prefix: bytes) -> RangeResult:
    return await client.range(*_range_of(prefix))


def _range_of(prefix: bytes) -> tuple[bytes, bytes]:
    return prefix + b"/", end_of_prefix(prefix + b"/")


def _first(prefix: bytes, kvs: Iterable[KeyValue]) -> KeyValue | None:
    """Who leads. A key without a lease is no candidate's: a copied one would lead for ever."""
    below = len(prefix) + 1
    candidates = (kv for kv in kvs if kv.lease and b"/" not in kv.key[below:])
    return min(candidates, key=lambda kv: kv.create_revision, default=None)

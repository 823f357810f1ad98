"""Liveness by etcd leases: one lease per node, kept alive by whichever replica hears the node.

Decided here: when a node's lease is granted and renewed. A beat is never made to wait for etcd: it
is noted, and the lease is renewed beside it, at most once in half a heartbeat interval. A renewal
moves no revision; only a node that comes, or comes back, costs one put. What follows from a lease
that ended is decided by ``nodes.liveness``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from datetime import datetime, timedelta

import structlog
from attrs import evolve, frozen

from persys_adapters.etcd.client import (
    Compare,
    EtcdClient,
    EtcdError,
    GetKey,
    KeyValue,
    LeaseLostError,
    Put,
    RangeResult,
    WatchBatch,
    end_of_prefix,
)
from persys_core.memory.liveness import MemoryLiveness
from persys_core.model.ids import NodeId
from persys_core.ports.clock import Clock

__all__ = ["LIVE_PREFIX", "EtcdLiveness"]

LIVE_PREFIX = "/persys/live/"
AT_ONCE = 64
QUESTIONS_PER_LEASE = 6
_AGAIN = timedelta(seconds=1)
_log = structlog.stdlib.get_logger("persys_adapters.etcd.liveness")


@frozen
class _Held:
    """A node's lease as this replica knows it; monotonic seconds of its last renewal here."""

    lease_id: int
    ttl: timedelta = timedelta(0)
    renewed_at: float = float("-inf")


class EtcdLiveness:
    """Node leases that all replicas see. ``start`` it, and ``aclose`` it before its client.

    ``interval``: the heartbeat interval. A node counts as alive while its key stands, as this
    replica follows it, and for its lease after this replica heard it itself.
    """

    def __init__(
        self,
        client: EtcdClient,
        clock: Clock,
        *,
        lease: timedelta,
        interval: timedelta,
        prefix: str = "",
    ) -> None:
        self._client = client
        self._clock = clock
        self._lease = lease
        self._least_gap = interval.total_seconds() / 2
        self._prefix = (prefix + LIVE_PREFIX).encode()
        self._heard = MemoryLiveness(clock, lease)
        self._held: dict[NodeId, _Held] = {}
        self._standing: set[NodeId] = set()
        self._ended: dict[NodeId, datetime] = {}
        self._due: dict[NodeId, timedelta] = {}
        self._leaving: set[int] = set()
        self._bell = asyncio.Event()
        self._answered_at = clock.monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to follow the leases and to renew them."""
        self._tasks = [
            asyncio.create_task(self._for_ever(name, body), name=f"node leases: {name}")
            for name, body in (
                ("follow", self._follow),
                ("renew", self._renew),
                ("ask", self._ask),
            )
        ]

    async def aclose(self) -> None:
        """End that; the leases run out by themselves, or another replica renews them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def touch(self, node_id: NodeId, lease: timedelta) -> datetime:
        """The node was heard now: alive for ``lease`` from now. Answers when that ends."""
        ends_at = await self._heard.touch(node_id, lease)
        self._ended.pop(node_id, None)
        held = self._held.get(node_id)
        due = held is None or held.ttl != lease or self._is_due(held)
        if due or node_id not in self._standing:
            self._due[node_id] = lease
            self._bell.set()
        return ends_at

    async def forget(self, node_id: NodeId) -> None:
        """The node left the cluster; its lease is ended beside."""
        await self._heard.forget(node_id)
        self._ended.pop(node_id, None)
        self._due.pop(node_id, None)
        held = self._held.pop(node_id, None)
        if held is not None:
            self._leaving.add(held.lease_id)
            self._bell.set()

    def grace_all(self, node_ids: Iterable[NodeId], lease: timedelta) -> None:
        """Count every given node as alive for one full ``lease`` from now, or longer."""
        self._heard.grace_all(node_ids, lease)

    def is_alive(self, node_id: NodeId) -> bool:
        """Whether the node's lease has not ended."""
        return node_id in self._standing or self._heard.is_alive(node_id)

    def confirmed(self, node_id: NodeId) -> timedelta:
        """How much longer the node's key stands in etcd, by its last renewal from here."""
        held = self._held.get(node_id)
        if held is None or node_id not in self._standing:
            return timedelta(0)
        passed = self._clock.monotonic() - held.renewed_at
        return timedelta(seconds=max(0.0, held.ttl.total_seconds() - passed))

    def last_seen(self, node_id: NodeId) -> datetime | None:
        """When the node was last heard by this replica."""
        return self._heard.last_seen(node_id)

    def expired_since(self, node_id: NodeId) -> datetime | None:
        """When the node's lease ended; ``None`` while it is alive."""
        if self.is_alive(node_id):
            return None
        here = self._heard.expired_since(node_id) or self._clock.now()
        return max(here, self._ended.get(node_id, here))

    def _is_due(self, held: _Held) -> bool:
        return self._clock.monotonic() - held.renewed_at >= self._least_gap

    async def _for_ever(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        """The edge of a loop: it outlives every bug, and says so."""
        while True:
            try:
                await body()
            except EtcdError as error:
                _log.debug("node leases wait for etcd", loop=name, reason=str(error))
            except Exception:
                _log.exception("this is a bug in the node leases", loop=name)
            await self._clock.sleep(_AGAIN)

    # Renewing

    async def _renew(self) -> None:
        """Renew what is due, many at once; what etcd does not answer is due with the next beat."""
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(node_id: NodeId, lease: timedelta) -> None:
            async with at_once:
                with suppress(EtcdError):
                    await self._renew_one(node_id, lease)
                    self._answered()

        while True:
            await self._bell.wait()
            self._bell.clear()
            due, self._due = self._due, {}
            leaving, self._leaving = self._leaving, set()
            await asyncio.gather(
                *(one(node_id, lease) for node_id, lease in due.items()),
                *(self._end(lease_id) for lease_id in leaving),
            )

    async def _renew_one(self, node_id: NodeId, lease: timedelta) -> None:
        held = self._held.get(node_id)
        began = self._clock.monotonic()
        if held is not None and node_id in self._standing and held.ttl in (lease, timedelta(0)):
            with suppress(LeaseLostError):
                await self._client.keep_alive(held.lease_id)
                self._held[node_id] = _Held(held.lease_id, lease, began)
                return
        await self._grant(node_id, lease, began)

    async def _grant(self, node_id: NodeId, lease: timedelta, began: float) -> None:
        """A new lease and the key on it; another replica's that is there already is taken over."""
        granted = await self._client.lease_grant(max(1, round(lease.total_seconds())))
        key = self._prefix + node_id.encode()
        held = self._held.get(node_id)
        mine = held is not None and held.ttl not in (lease, timedelta(0))
        put = Put(key, b"", lease=granted.id)
        result = await self._client.txn(
            [] if mine else [Compare(key, create_revision=0)],
            success=[put],
            failure=[GetKey(key)],
        )
        found = _first(result.responses)
        if found is not None and not found.lease:
            # A copied key, which would stand for ever.
            await self._client.txn([Compare(key, lease=0)], success=[put])
            found = None
        if result.succeeded or found is None:
            self._held[node_id] = _Held(granted.id, lease, began)
            self._stands(node_id)
            if mine and held is not None:
                await self._end(held.lease_id)
            return
        self._held[node_id] = _Held(found.lease)
        self._stands(node_id)
        await self._end(granted.id)
        await self._client.keep_alive(found.lease)

    async def _end(self, lease_id: int) -> None:
        with suppress(EtcdError):
            await self._client.lease_revoke(lease_id)

    async def _ask(self) -> None:
        """Know by small reads that etcd answers, so that quiet is not taken for an outage."""
        while True:
            await self._clock.sleep(self._lease / QUESTIONS_PER_LEASE)
            with suppress(EtcdError):
                await self._client.range(self._prefix, keys_only=True)
                self._answered()

    # Following

    async def _follow(self) -> None:
        """Know which keys stand, whoever put them; returns where it has to list anew."""
        revision = await self._list()
        events = self._client.watch(
            self._prefix, end_of_prefix(self._prefix), start_revision=revision + 1
        )
        async with aclosing(events):
            async for event in events:
                if not isinstance(event, WatchBatch):
                    return
                self._answered()
                for change in event.events:
                    self._take(change.key, None if change.is_delete else change.kv)

    async def _list(self) -> int:
        revision, found = 0, dict[bytes, KeyValue]()
        pages = self._client.pages(self._prefix, end_of_prefix(self._prefix))
        async with aclosing(pages):
            async for page in pages:
                revision = page.revision
                found |= {kv.key: kv for kv in page.kvs}
        self._answered()
        for key, kv in found.items():
            self._take(key, kv)
        leased = {self._node(key) for key, kv in found.items() if kv.lease}
        for node_id in self._standing - leased:
            self._falls(node_id)
        return revision

    def _take(self, key: bytes, kv: KeyValue | None) -> None:
        node_id = self._node(key)
        if kv is None or not kv.lease:
            self._falls(node_id)
            return
        held = self._held.get(node_id)
        if held is None or held.lease_id != kv.lease:
            self._held[node_id] = _Held(kv.lease)
        self._stands(node_id)

    def _stands(self, node_id: NodeId) -> None:
        self._standing.add(node_id)
        self._ended.pop(node_id, None)

    def _falls(self, node_id: NodeId) -> None:
        if node_id in self._standing:
            self._standing.discard(node_id)
            self._ended[node_id] = self._clock.now()
        held = self._held.get(node_id)
        if held is not None:
            self._held[node_id] = evolve(held, renewed_at=float("-inf"))

    def _node(self, key: bytes) -> NodeId:
        return key.removeprefix(self._prefix).decode(errors="replace")

    def _answered(self) -> None:
        """After an outage of ours every node has its full lease: nobody could be heard (N01)."""
        now = self._clock.monotonic()
        away, self._answered_at = now - self._answered_at, now
        if away > self._lease.total_seconds() / 2:
            self._heard.grace_all(self._standing | self._held.keys(), self._lease)


def _first(responses: Iterable[object]) -> KeyValue | None:
    ranges = (answer for answer in responses if isinstance(answer, RangeResult))
    return next((kv for answer in ranges for kv in answer.kvs), None)

"""A client of etcd, as far as membership asks it, whose leases run on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import cast

from persys_adapters.etcd.client import EtcdClient, RangeResult, TxnResult
from persys_adapters.etcd.client.values import KeyValue, Lease
from persys_core.sim.clock import VirtualClock

__all__ = ["FakeLeases"]

TRAVEL = timedelta(milliseconds=20)


class FakeLeases:
    """One lease after the other, and keys that are put and stay. It takes 20 ms to etcd and back.

    ``trouble`` is called before each renewal is sent, ``trouble_ending`` before each revocation,
    ``trouble_reading`` before each read. ``ends_at``: when etcd lets each lease run out, in the
    loop's seconds; those revoked are not there.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.ends_at: dict[int, float] = {}
        self.ttl: dict[int, int] = {}
        self.timeouts: list[float] = []
        self.sent_at: list[float] = []
        self.epoch = 7
        self.key_is_gone = False
        self.trouble: Callable[[], Awaitable[None]] = _nothing
        self.trouble_ending: Callable[[], Awaitable[None]] = _nothing
        self.trouble_reading: Callable[[], Awaitable[None]] = _nothing

    @property
    def client(self) -> EtcdClient:
        """This, for whoever wants a client."""
        return cast("EtcdClient", self)

    async def lease_grant(self, ttl_seconds: int, lease_id: int = 0) -> Lease:
        """A lease that counts from its arrival there, while its deadline counts from here."""
        began = self.clock.monotonic()
        number = len(self.ttl) + 1
        self.ttl[number] = ttl_seconds
        await self._travel(number)
        return Lease(number, ttl_seconds, began + ttl_seconds)

    async def keep_alive(self, lease_id: int, *, timeout: timedelta | None = None) -> float:
        """Renew it, with the trouble of the moment; ``timeout`` is noted, not kept."""
        self.timeouts.append(timeout.total_seconds() if timeout else float("inf"))
        began = self.clock.monotonic()
        self.sent_at.append(began)
        await self.trouble()
        await self._travel(lease_id)
        return began + self.ttl[lease_id]

    async def lease_revoke(self, lease_id: int) -> bool:
        """End it, with the trouble of the moment."""
        await self.trouble_ending()
        return self.ends_at.pop(lease_id, None) is not None

    async def txn(self, *_: Sequence[object]) -> TxnResult:
        """Whatever is to be put is put."""
        await self.clock.sleep(TRAVEL)
        self.epoch += 1
        return TxnResult(True, self.epoch, 1, ())

    async def range(self, key: bytes) -> RangeResult:
        """The key as it was put last."""
        await self.trouble_reading()
        kv = KeyValue(key, b"", self.epoch, self.epoch, 1, 1)
        kvs = () if self.key_is_gone else (kv,)
        return RangeResult(self.epoch, 1, kvs, False, len(kvs))

    async def _travel(self, lease_id: int) -> None:
        await self.clock.sleep(TRAVEL / 2)
        self.ends_at[lease_id] = self.clock.monotonic() + self.ttl[lease_id]
        await self.clock.sleep(TRAVEL / 2)


async def _nothing() -> None:
    """No trouble."""
    await asyncio.sleep(0)

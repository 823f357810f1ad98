"""Leases of one replica on etcd, kept alive until that is impossible.

Decided here: when a lease counts as lost. Its deadline counts from the sending of its last answered
renewal and is compared with the monotonic clock at each use, so a holder that was paused, or whose
renewals hang, knows of its loss before etcd gives the lease up (L01). Only etcd's word that the
lease is not there, or that its key is another's, ends it sooner: whatever else a renewal meets is
tried again until the deadline (L03).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog
from attrs import define

from persys_adapters.etcd.client import EtcdClient, EtcdError, LeaseLostError
from persys_core.memory.leases import Lease
from persys_core.ports.clock import Clock

__all__ = ["Session", "Sessions"]

RENEWALS_PER_TTL = 3
_RENEWAL_SHARE = 0.2
"""So much of a lease a renewal may take: several are tried before it runs out."""
_LOOK_SHARE = 0.1
_AGAIN_SHARE = 1 / 15
# A clock that counts whole ticks would not get past the rest of one.
_LEAST_WAIT = 0.001
_REVOKING_SECONDS = 1.5
_log = structlog.stdlib.get_logger("persys_adapters.etcd.membership")


@define(eq=False)
class Session(Lease):
    """One lease. ``key`` was put under it and created at ``epoch``; empty before that."""

    lease_id: int
    key: bytes = b""
    epoch: int = 0
    renewal: asyncio.Task[None] | None = None

    def holds(self, key: bytes, epoch: int) -> None:
        """From now on the lease is lost with ``key``."""
        self.key, self.epoch = key, epoch


class Sessions:
    """Begins, renews and ends them. ``ttl``: whole seconds; etcd grants no less than two."""

    def __init__(self, client: EtcdClient, clock: Clock, instance_id: str, ttl: timedelta) -> None:
        self._client = client
        self._clock = clock
        self._instance_id = instance_id
        self._ttl = ttl.total_seconds()

    async def begin(self) -> Session:
        """A new lease, renewed from now on. EtcdError."""
        lease = await self._client.lease_grant(max(1, round(self._ttl)))
        session = Session(self._instance_id, lease.deadline, lease.id)
        session.renewal = asyncio.create_task(
            self._renew(session), name=f"{self._instance_id}: lease {lease.id:x}"
        )
        return session

    async def end(self, session: Session) -> None:
        """End the lease, and with it its keys. Where etcd is away the lease runs out by itself."""
        session.ended.set()
        if session.renewal is not None:
            session.renewal.cancel()
        await self._revoke(session)

    async def _renew(self, session: Session) -> None:
        try:
            if not await self._is_gone(session):
                # A renewal may have come through late: nobody is to wait for this lease.
                session.ended.set()
                await self._revoke(session)
        finally:
            session.ended.set()

    async def _is_gone(self, session: Session) -> bool:
        """Renew until it is lost. True where etcd says that the lease is not there any more."""
        pause = self._ttl / RENEWALS_PER_TTL
        while (left := session.deadline - self._clock.monotonic()) > 0:
            await self._clock.sleep(timedelta(seconds=max(_LEAST_WAIT, min(pause, left))))
            began = self._clock.monotonic()
            pause = self._ttl * _AGAIN_SHARE
            try:
                await self._renew_once(session, began)
            except LeaseLostError as failure:
                _tell("a lease is gone", session, failure)
                return True
            except Exception as failure:
                _tell("a lease could not be renewed; it is tried again", session, failure)
                continue
            if not await self._stands(session):
                _log.warning("a lease is of no use: its key is gone", key=session.key.decode())
                return False
            took = self._clock.monotonic() - began
            pause = max(pause, self._ttl / RENEWALS_PER_TTL - took)
        return False

    async def _revoke(self, session: Session) -> None:
        try:
            async with asyncio.timeout(_REVOKING_SECONDS):
                await self._client.lease_revoke(session.lease_id)
        except Exception as failure:
            _tell("a lease could not be ended; it runs out by itself", session, failure)

    async def _renew_once(self, session: Session, now: float) -> None:
        seconds = min(self._ttl * _RENEWAL_SHARE, session.deadline - now)
        if seconds <= 0:
            raise TimeoutError("its deadline has passed")
        async with asyncio.timeout(seconds):
            deadline = await self._client.keep_alive(
                session.lease_id, timeout=timedelta(seconds=seconds)
            )
        session.renew(self._clock.monotonic(), deadline)

    async def _stands(self, session: Session) -> bool:
        """Whether the key is as it was put; somebody may have removed it. In doubt it is."""
        if not session.key:
            return True
        try:
            async with asyncio.timeout(self._ttl * _LOOK_SHARE):
                found = await self._client.range(session.key)
        except Exception as failure:
            _tell("a lease's key could not be looked at", session, failure)
            return True
        return [kv.create_revision for kv in found.kvs] == [session.epoch]


def _tell(event: str, session: Session, failure: Exception) -> None:
    """What is no error of etcd's client comes from nowhere that is known, and is shown."""
    known = isinstance(failure, EtcdError | TimeoutError)
    log = _log.debug if known else _log.warning
    log(event, lease=f"{session.lease_id:x}", reason=str(failure), kind=type(failure).__name__)

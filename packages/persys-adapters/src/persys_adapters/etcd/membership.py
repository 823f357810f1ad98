"""Membership by etcd's own election protocol, so that a reference replica is excluded as well.

Decided here: the keys of an election, and when a lead is lost. The one who leads is whose key has
the lowest creation revision; that revision is the epoch. The lease's deadline counts from the
sending of its last renewal and is compared with the monotonic clock at each use, so a holder that
was paused knows of its loss before another one can win.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

from attrs import define, field

from persys_adapters.etcd.client import EtcdClient, EtcdError, LeaseLostError, end_of_prefix
from persys_adapters.etcd.client.election import campaign
from persys_adapters.etcd.errors import translated
from persys_adapters.records.layout import LEADER_PREFIX
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Expectation, Key, Kind, StoreUnavailableError
from persys_core.ports.membership import Leadership

__all__ = ["EtcdMembership"]

RENEWALS_PER_TTL = 3
_UNNAMED = "scheduler"
"""The election whose keys stand right under the prefix, where the reference has them."""


@define(eq=False)
class _Session:
    """One lease of this replica; ``deadline`` is monotonic seconds, ``ended`` its certain end."""

    lease_id: int
    deadline: float
    ended: asyncio.Event = field(factory=asyncio.Event)
    renewal: asyncio.Task[None] | None = None

    def is_valid(self, now: float) -> bool:
        """Whether it has neither been ended nor run out at ``now``."""
        return not self.ended.is_set() and now < self.deadline


class EtcdMembership:
    """One replica's part in elections. ``ttl``: whole seconds; etcd grants no less than two."""

    def __init__(
        self,
        client: EtcdClient,
        clock: Clock,
        instance_id: str,
        *,
        ttl: timedelta,
        prefix: str = "",
    ) -> None:
        self._client = client
        self._clock = clock
        self._instance_id = instance_id
        self._ttl = ttl
        self._prefix = prefix
        self._held: dict[Leadership, _Session] = {}

    @property
    def instance_id(self) -> str:
        """This replica's name, unique per process life."""
        return self._instance_id

    async def campaign(self, election: str) -> Leadership:
        """Wait until this replica leads ``election``. Cancelling it leaves no trace.

        Raises StoreUnavailableError where etcd cannot be spoken to; the lease is given up then.
        """
        while True:
            session = await self._begin()
            try:
                leadership = await self._win(election, session)
            except BaseException:
                await _finished(self._give_up(session))
                raise
            if leadership is not None:
                self._held[leadership] = session
                return leadership
            await self._give_up(session)

    def is_valid(self, leadership: Leadership) -> bool:
        """Whether the lease of ``leadership`` has not ended, by the monotonic clock."""
        session = self._held.get(leadership)
        return session is not None and session.is_valid(self._clock.monotonic())

    async def lost(self, leadership: Leadership) -> None:
        """Wait until ``leadership`` is lost, be it by resigning or by running out."""
        session = self._held.get(leadership)
        while session is not None and session.is_valid(self._clock.monotonic()):
            with suppress(TimeoutError):
                left = session.deadline - self._clock.monotonic()
                async with asyncio.timeout(max(0.001, left)):
                    await session.ended.wait()

    async def resign(self, leadership: Leadership) -> None:
        """Give the lead up at once; resigning what is already lost is no error."""
        session = self._held.pop(leadership, None)
        if session is not None:
            await _finished(self._give_up(session))

    async def leader(self, election: str) -> str:
        """The instance that leads ``election`` now; empty where nobody does."""
        folder = self._folder(election).encode()
        with translated():
            found = await self._client.range(folder, end_of_prefix(folder))
        candidates = [
            kv for kv in found.kvs if kv.lease and b"/" not in kv.key.removeprefix(folder)
        ]
        if not candidates:
            return ""
        return min(candidates, key=lambda kv: kv.create_revision).value.decode(errors="replace")

    async def aclose(self) -> None:
        """Give everything up; nothing is renewed any more."""
        for leadership in list(self._held):
            await self.resign(leadership)

    async def _begin(self) -> _Session:
        with translated():
            lease = await self._client.lease_grant(max(1, round(self._ttl.total_seconds())))
        session = _Session(lease.id, lease.deadline)
        session.renewal = asyncio.create_task(
            self._renew(session), name=f"{self._instance_id}: leader lease"
        )
        return session

    async def _win(self, election: str, session: _Session) -> Leadership | None:
        """``None`` where the lease ended before the lead was won."""
        folder = self._folder(election).rstrip("/").encode()
        running = asyncio.ensure_future(
            campaign(self._client, folder, session.lease_id, self._instance_id.encode())
        )
        ended = asyncio.ensure_future(session.ended.wait())
        try:
            await asyncio.wait((running, ended), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                return None
            with translated():
                won = running.result()
        finally:
            for task in (running, ended):
                task.cancel()
            await asyncio.gather(running, ended, return_exceptions=True)
        path = won.key.decode().removeprefix(self._prefix)
        key = Key(Kind.LEADER, path.removeprefix(LEADER_PREFIX))
        fence = Expectation(key, create_revision=won.create_revision)
        return Leadership(election, self._instance_id, won.create_revision, fence)

    async def _renew(self, session: _Session) -> None:
        """Three times in a lease; one that etcd does not answer is tried again, until it ends."""
        pause = self._ttl / RENEWALS_PER_TTL
        while session.is_valid(self._clock.monotonic()):
            await self._clock.sleep(pause)
            try:
                session.deadline = await self._client.keep_alive(session.lease_id)
                pause = self._ttl / RENEWALS_PER_TTL
            except LeaseLostError:
                break
            except EtcdError:
                pause = self._ttl / (RENEWALS_PER_TTL * 5)
        session.ended.set()

    async def _give_up(self, session: _Session) -> None:
        """End the lease, and with it the key. Where etcd is away the lease runs out by itself."""
        session.ended.set()
        if session.renewal is not None:
            session.renewal.cancel()
        with suppress(EtcdError, StoreUnavailableError):
            await self._client.lease_revoke(session.lease_id)

    def _folder(self, election: str) -> str:
        folder = self._prefix + LEADER_PREFIX
        return folder if election == _UNNAMED else f"{folder}{election}/"


async def _finished(undoing: Coroutine[Any, Any, None]) -> None:
    """See ``undoing`` through, even where the waiter is cancelled once more."""
    task = asyncio.ensure_future(undoing)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()

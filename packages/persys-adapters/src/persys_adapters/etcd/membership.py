"""Membership by etcd's own election protocol, so that a reference replica is excluded as well.

Decided here: the keys of an election. The one who leads is whose key has the lowest creation
revision; that revision is the epoch. When a lead or a registration is lost is decided in
``sessions``, what is put of a registration in ``registrations``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from persys_adapters.etcd.client import EtcdClient
from persys_adapters.etcd.client.election import campaign, leader
from persys_adapters.etcd.errors import translated
from persys_adapters.etcd.registrations import Registrations
from persys_adapters.etcd.sessions import Session, Sessions
from persys_adapters.records.layout import LEADER_PREFIX
from persys_core.memory.finishing import finished
from persys_core.model.replica import ReplicaRecord
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Expectation, Key, Kind
from persys_core.ports.membership import Leadership, RegistrationLostError

__all__ = ["EtcdMembership"]

_UNNAMED = "scheduler"
"""The election whose keys stand right under the prefix, where the reference has them."""


class EtcdMembership:
    """One replica's part. ``ttl``: whole seconds; etcd grants no less than two."""

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
        self._prefix = prefix
        self._sessions = Sessions(client, clock, instance_id, ttl)
        self._registrations = Registrations(client, instance_id, prefix)
        self._held: dict[Leadership, Session] = {}

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
                await finished(self._sessions.end(session))
                raise
            if leadership is not None:
                self._hold(leadership, session)
                return leadership
            await self._sessions.end(session)

    async def register(self, record: ReplicaRecord) -> Leadership:
        """Put ``record`` for as long as this replica renews its lease; see the port."""
        if record.instance_id != self._instance_id:
            raise ValueError(f"{self._instance_id} cannot register {record.instance_id}")
        session = await self._begin()
        try:
            registration = await self._registrations.put(session, record)
        except BaseException:
            await finished(self._sessions.end(session))
            raise
        self._hold(registration, session)
        return registration

    async def acknowledge(self, registration: Leadership, version: int) -> None:
        """Put this replica's word on ``version`` of the shard map beside its record."""
        session = self._held.get(registration)
        if session is None or not session.is_valid(self._clock.monotonic()):
            raise RegistrationLostError(
                f"{registration.instance_id} is not registered any more: register again"
            )
        await self._registrations.acknowledge(session, registration, version)

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
        """Give the lead, or the registration, up at once; what is lost already is no error."""
        session = self._held.pop(leadership, None)
        if session is not None:
            await finished(self._sessions.end(session))

    async def leader(self, election: str) -> str:
        """The instance that leads ``election`` now; empty where nobody does."""
        with translated():
            found = await leader(self._client, self._folder(election))
        return found.value.decode(errors="replace") if found is not None else ""

    async def aclose(self) -> None:
        """Give everything up; nothing is renewed any more."""
        await asyncio.gather(*(self.resign(leadership) for leadership in tuple(self._held)))

    async def _begin(self) -> Session:
        with translated():
            return await self._sessions.begin()

    def _hold(self, leadership: Leadership, session: Session) -> None:
        now = self._clock.monotonic()
        self._held = {each: held for each, held in self._held.items() if held.is_valid(now)}
        self._held[leadership] = session

    async def _win(self, election: str, session: Session) -> Leadership | None:
        """``None`` where the lease ended before the lead was won."""
        folder = self._folder(election)
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
        session.holds(won.key, won.create_revision)
        path = won.key.decode().removeprefix(self._prefix)
        key = Key(Kind.LEADER, path.removeprefix(LEADER_PREFIX))
        fence = Expectation(key, create_revision=won.create_revision)
        return Leadership(election, self._instance_id, won.create_revision, fence)

    def _folder(self, election: str) -> bytes:
        """Where the candidates' keys stand, without a slash at its end."""
        folder = (self._prefix + LEADER_PREFIX).rstrip("/")
        return (folder if election == _UNNAMED else f"{folder}/{election}").encode()

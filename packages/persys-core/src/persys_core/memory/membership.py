"""Membership for replicas that share an ``ElectionHub``, and its epochs in a ClusterStore.

The hub decides who may lead; the epoch is the creation revision of the leader's record, which the
winner writes anew, so it grows strictly. Works on any ClusterStore, so the embedded store uses it
too. What a leader may do is decided by the loops that run under it; what is written of a
registration in ``registering``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TypeAlias

from persys_core.memory.elections import ElectionHub, LeaderLease
from persys_core.memory.finishing import finished
from persys_core.memory.leases import Lease
from persys_core.memory.registering import Registering
from persys_core.memory.registrations import ReplicaLease
from persys_core.model.cluster import LeaderRecord
from persys_core.model.ids import StoreRevision
from persys_core.model.replica import ReplicaRecord
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import (
    ClusterStore,
    Commit,
    CommitResult,
    Committed,
    Delete,
    Expectation,
    Key,
    Put,
    StoreUnavailableError,
)
from persys_core.ports.membership import Leadership, RegistrationLostError

__all__ = ["MemoryMembership"]

DEFAULT_TTL = timedelta(seconds=15)
RENEWALS_PER_TTL = 3
_LEAST_WAIT = 0.001

_TakingOffice: TypeAlias = "asyncio.Task[Leadership | None]"


class MemoryMembership:
    """One replica's part among the replicas; a lease of ``ttl`` is renewed three times in its life.

    ``stall`` and ``resume`` stand for a process that is stopped and goes on: a stalled one
    renews nothing and wins nothing. ``close`` stands for its death: nothing is handed over, the
    leases run out.
    """

    def __init__(
        self,
        hub: ElectionHub,
        store: ClusterStore,
        clock: Clock,
        instance_id: str,
        ttl: timedelta = DEFAULT_TTL,
    ) -> None:
        self._hub = hub
        self._store = store
        self._clock = clock
        self._instance_id = instance_id
        self._ttl = ttl
        self._registrations = hub.registrations(store, clock)
        self._registering = Registering(self._registrations, store, clock)
        self._held: dict[Leadership, Lease] = {}
        self._renewals: dict[Lease, asyncio.Task[None]] = {}
        self._is_closed = False
        self._running = asyncio.Event()
        self._running.set()

    @property
    def instance_id(self) -> str:
        """This replica's name, unique per process life."""
        return self._instance_id

    async def campaign(self, election: str) -> Leadership:
        """Wait until this replica leads ``election``. Cancelling it leaves no trace.

        Raises StoreUnavailableError where the leader's record cannot be written; the election is
        free again then.
        """
        while True:
            lease = await self._acquired(election)
            taking_office = asyncio.create_task(self._take_office(lease))
            try:
                leadership = await asyncio.shield(taking_office)
            except BaseException:
                await finished(self._undo(lease, taking_office))
                raise
            if leadership is not None:
                return leadership

    async def register(self, record: ReplicaRecord) -> Leadership:
        """Put ``record`` for as long as this replica renews its lease; see the port."""
        if record.instance_id != self._instance_id:
            raise ValueError(f"{self._instance_id} cannot register {record.instance_id}")
        await self._running.wait()
        lease = await self._registrations.grant(self._instance_id, self._ttl.total_seconds())
        self._keep(lease)
        putting = asyncio.create_task(self._registering.put(lease, record))
        try:
            registration = await asyncio.shield(putting)
        except BaseException:
            await finished(self._withdraw(lease, putting))
            raise
        self._forget_ended()
        self._held[registration] = lease
        return registration

    async def acknowledge(self, registration: Leadership, version: int) -> None:
        """Put this replica's word on ``version`` of the shard map beside its record."""
        await self._running.wait()
        lease = self._held.get(registration)
        if not isinstance(lease, ReplicaLease):
            raise RegistrationLostError(f"{registration.instance_id} is not registered any more")
        await self._registering.acknowledge(lease, registration, version)

    def is_valid(self, leadership: Leadership) -> bool:
        """Whether the lease of ``leadership`` has not ended, by the monotonic clock."""
        lease = self._held.get(leadership)
        return lease is not None and lease.is_valid(self._clock.monotonic())

    async def lost(self, leadership: Leadership) -> None:
        """Wait until ``leadership`` is lost, be it by resigning or by running out."""
        lease = self._held.get(leadership)
        while lease is not None and lease.is_valid(self._clock.monotonic()):
            await self._until(lease.ended, lease.deadline)

    async def resign(self, leadership: Leadership) -> None:
        """Give the lead, or the registration, up at once; what is lost already is no error.

        Where the store is away a leader's record stays, harmless: the next winner replaces it. A
        replica's record stays until its lease has run out.
        """
        lease = self._held.pop(leadership, None)
        if isinstance(lease, ReplicaLease):
            await self._leave_registration(lease)
        if not isinstance(lease, LeaderLease):
            return
        lease.ended.set()
        try:
            with suppress(StoreUnavailableError):
                await self._erase(leadership.election, leadership.epoch)
        finally:
            self._leave(lease)

    async def leader(self, election: str) -> str:
        """The instance that leads ``election`` now; empty where nobody does."""
        lease = self._hub.holder(election, self._clock.monotonic())
        return lease.instance_id if lease is not None and lease.in_office else ""

    def stall(self) -> None:
        """From now on renew nothing and win nothing, as a stopped process."""
        self._running.clear()

    def resume(self) -> None:
        """Go on after ``stall``; what ran out meanwhile is lost."""
        self._running.set()

    def close(self) -> None:
        """Stop renewing, hand nothing over: the leases run out by themselves."""
        self._is_closed = True
        self.stall()
        for renewal in self._renewals.values():
            renewal.cancel()
        self._renewals.clear()
        # What is still cleaned up after this, resigning included, hands nothing over.
        self._held.clear()

    async def _acquired(self, election: str) -> LeaderLease:
        with self._hub.listening() as released:
            while True:
                await self._running.wait()
                released.clear()
                now = self._clock.monotonic()
                lease = self._hub.acquire(
                    election, self._instance_id, now, self._ttl.total_seconds()
                )
                if lease is not None:
                    return lease
                holder = self._hub.holder(election, now)
                if holder is not None:
                    await self._until(released, holder.deadline)

    async def _take_office(self, lease: LeaderLease) -> Leadership | None:
        """Replace the leader's record; ``None`` where the lease ran out over it."""
        self._keep(lease)
        epoch = await self._write_record(lease)
        if epoch is None:
            self._leave(lease)
            return None
        self._forget_ended()
        fence = Expectation(Key.leader(lease.election), create_revision=epoch)
        leadership = Leadership(lease.election, self._instance_id, epoch, fence)
        self._held[leadership] = lease
        lease.in_office = True
        return leadership

    async def _write_record(self, lease: LeaderLease) -> StoreRevision | None:
        key, record = Key.leader(lease.election), LeaderRecord(lease.election, self._instance_id)
        while lease.is_valid(self._clock.monotonic()):
            found = (await self._store.get([key]))[key]
            if found is not None:
                await self._commit(Expectation(key, revision=found.revision), Delete(key))
                continue
            result = await self._commit(Expectation(key, revision=0), Put(key, record))
            if isinstance(result, Committed) and lease.is_valid(self._clock.monotonic()):
                return result.revision
            if isinstance(result, Committed):
                await self._erase(lease.election, result.revision)
        return None

    def _forget_ended(self) -> None:
        now = self._clock.monotonic()
        self._held = {won: lease for won, lease in self._held.items() if lease.is_valid(now)}

    async def _undo(self, lease: LeaderLease, taking_office: _TakingOffice) -> None:
        """Leave no trace of a campaign that was cancelled or could not write."""
        try:
            with suppress(StoreUnavailableError):
                leadership = await taking_office
                if leadership is not None:
                    await self.resign(leadership)
        finally:
            self._leave(lease)

    async def _withdraw(self, lease: ReplicaLease, putting: asyncio.Task[Leadership]) -> None:
        """Leave no trace of a registration that was cancelled or could not be written."""
        await asyncio.gather(putting, return_exceptions=True)
        await self._leave_registration(lease)

    async def _leave_registration(self, lease: ReplicaLease) -> None:
        self._stop_renewing(lease)
        lease.ended.set()
        if self._is_closed:
            return
        with suppress(StoreUnavailableError):
            await self._registering.give_up(lease)

    async def _erase(self, election: str, epoch: StoreRevision) -> None:
        key = Key.leader(election)
        await self._commit(Expectation(key, create_revision=epoch), Delete(key))

    async def _commit(self, wanted: Expectation, write: Put | Delete) -> CommitResult:
        token = f"{self._instance_id}:{wanted.key}:{wanted.revision}:{wanted.create_revision}"
        return await self._store.commit(Commit((wanted,), (write,), token))

    def _leave(self, lease: LeaderLease) -> None:
        self._stop_renewing(lease)
        self._hub.release(lease)

    def _keep(self, lease: Lease) -> None:
        renewal = asyncio.create_task(self._renew(lease))
        self._renewals[lease] = renewal
        renewal.add_done_callback(lambda _: self._renewals.pop(lease, None))

    def _stop_renewing(self, lease: Lease) -> None:
        renewal = self._renewals.pop(lease, None)
        if renewal is not None:
            renewal.cancel()

    async def _renew(self, lease: Lease) -> None:
        pause = self._ttl / RENEWALS_PER_TTL
        while lease.is_valid(self._clock.monotonic()):
            await self._clock.sleep(pause)
            await self._running.wait()
            is_told = await self._renew_once(lease)
            pause = self._ttl / (RENEWALS_PER_TTL if is_told else RENEWALS_PER_TTL * 5)
        lease.ended.set()

    async def _renew_once(self, lease: Lease) -> bool:
        """False where the store was to be asked and did not answer."""
        ttl = self._ttl.total_seconds()
        if isinstance(lease, ReplicaLease):
            return await self._registering.renew(lease, ttl)
        now = self._clock.monotonic()
        lease.renew(now, now + ttl)
        return True

    async def _until(self, happened: asyncio.Event, deadline: float) -> None:
        """Wait for the event or for the monotonic deadline, whichever comes first."""
        # Never less: a clock that counts whole ticks would not get past the rest of one.
        seconds = max(_LEAST_WAIT, deadline - self._clock.monotonic())
        waits = (
            asyncio.create_task(happened.wait()),
            asyncio.create_task(self._clock.sleep(timedelta(seconds=seconds))),
        )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

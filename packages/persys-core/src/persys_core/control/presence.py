"""Presence: this replica's record among the others, kept as long as it runs.

Decided here: which replicas may work together. All of one cluster share the work in the same way,
and in active-active mode by the same number of shards; whoever comes later and differs is refused,
since two rules of ownership would leave nodes to nobody, or to two.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta

from attrs import define, field

from persys_core.control.config import HaConfig
from persys_core.control.view import ClusterView
from persys_core.model.errors import PersysError
from persys_core.model.replica import HaMode, ReplicaRecord
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Kind, StoreUnavailableError
from persys_core.ports.membership import Leadership, Membership

__all__ = ["HaMismatchError", "Presence"]

RETRY_AFTER = timedelta(seconds=1)
_log = logging.getLogger("persys.scheduler")


class HaMismatchError(PersysError):
    """Another replica of this cluster shares the work in another way; this one may not take part.

    The text names both values, and what to do.
    """


@define(eq=False)
class Presence:
    """One replica's registration."""

    _membership: Membership
    _view: ClusterView
    _clock: Clock
    _config: HaConfig

    registration: Leadership | None = field(default=None, init=False)
    _registered: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def begin(self) -> None:
        """Be registered from now on. StoreUnavailableError where the store does not answer."""
        if self.registration is None:
            self.registration = await self._membership.register(self._record())
            self._registered.set()

    def check(self) -> None:
        """Raise HaMismatchError if a replica that was there first shares the work otherwise."""
        registered = self._view.all(Kind.REPLICA)
        mine = registered.get(self._membership.instance_id)
        others = [
            stored.value
            for stored in registered.values()
            if isinstance(stored.value, ReplicaRecord)
            and (mine is None or stored.create_revision < mine.create_revision)
        ]
        for other in sorted(others, key=lambda each: each.instance_id):
            if difference := _difference(other, self._record()):
                raise HaMismatchError(difference)

    async def present(self) -> Leadership:
        """Wait until this replica is registered; its registration."""
        while self.registration is None or not self._membership.is_valid(self.registration):
            self._registered.clear()
            await self._registered.wait()
        return self.registration

    async def run(self) -> None:
        """Register anew whenever the registration was lost, until cancelled; then it is given up.

        A replica whose lease ended over an outage comes back as one that was never there.
        """
        try:
            while True:
                if self.registration is not None:
                    await self._membership.lost(self.registration)
                self.registration = None
                try:
                    await self.begin()
                except StoreUnavailableError:
                    await self._clock.sleep(RETRY_AFTER)
        finally:
            await self.end()

    async def end(self) -> None:
        """Give the registration up, so that others need not wait for the end of its lease."""
        registration, self.registration = self.registration, None
        if registration is not None:
            with suppress(StoreUnavailableError):
                await self._membership.resign(registration)

    def _record(self) -> ReplicaRecord:
        return ReplicaRecord(
            self._membership.instance_id,
            self._clock.now(),
            version=self._config.version,
            ha_mode=self._config.mode,
            shard_count=self._config.shard_count,
            shard_index=self._config.shard_index,
            address=self._config.address,
        )


def _difference(other: ReplicaRecord, mine: ReplicaRecord) -> str:
    """What keeps ``mine`` from working beside ``other``; empty where nothing does."""
    if other.ha_mode is not mine.ha_mode:
        return (
            f"SCHEDULER_HA_MODE is {mine.ha_mode} here and {other.ha_mode} at replica"
            f" {other.instance_id}: all replicas of a cluster need the same; to change it, stop"
            " all of them first"
        )
    counts = (mine.shard_count, other.shard_count)
    if mine.ha_mode is HaMode.ACTIVE_ACTIVE and counts[0] != counts[1]:
        return (
            f"SCHEDULER_SHARD_COUNT is {counts[0]} here and {counts[1]} at replica"
            f" {other.instance_id}: all replicas of a cluster need the same; to change it, stop"
            " all of them first"
        )
    return ""

"""Coordinator: one elected member of elastic mode keeps the shard map by who is there.

Nothing is decided here: what the next map is stands in ``sharding.map_changes``. Any member may be
elected; while none is, the present map stands, and who was lost is not replaced.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta

from attrs import define, field

from persys_core.control.committer import Committer, LeadershipLostError
from persys_core.control.events import EventPublisher
from persys_core.control.ownership import seats_in
from persys_core.control.unreadable import clear_unreadable
from persys_core.control.view import ClusterView
from persys_core.model.errors import FrozenError
from persys_core.model.event import EventType
from persys_core.model.replica import HaMode, ReplicaRecord, ShardMap
from persys_core.placement.ledger import Transaction
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import (
    COORDINATION,
    Committed,
    Key,
    Kind,
    Record,
    StoreUnavailableError,
    Versioned,
)
from persys_core.ports.membership import Leadership, Membership
from persys_core.sharding.map_changes import next_map

__all__ = ["COORDINATION_ELECTION", "Coordinator"]

COORDINATION_ELECTION = "coordinator"
RETRY_AFTER = timedelta(seconds=1)
AGAIN_AFTER = timedelta(milliseconds=100)
_log = logging.getLogger("persys.scheduler")


@define(eq=False)
class Coordinator:
    """One replica's part in keeping the map."""

    _membership: Membership
    _view: ClusterView
    _committer: Committer
    _events: EventPublisher
    _clock: Clock
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def run(self) -> None:
        """Campaign, keep the map, and campaign again after a loss, until cancelled."""
        self._view.listen(self._on_change)
        try:
            while True:
                await self._serve()
        finally:
            self._view.unlisten(self._on_change)

    async def _serve(self) -> None:
        try:
            leadership = await self._membership.campaign(COORDINATION_ELECTION)
        except StoreUnavailableError:
            await self._clock.sleep(RETRY_AFTER)
            return
        lost = asyncio.create_task(self._membership.lost(leadership))
        keeping = asyncio.create_task(self._keep(leadership))
        details = {"instance_id": leadership.instance_id, "election": COORDINATION_ELECTION}
        self._events.publish(EventType.LEADER_ELECTED, details=details)
        try:
            await asyncio.wait((lost, keeping), return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                keeping.result()
        finally:
            for task in (lost, keeping):
                task.cancel()
            await asyncio.gather(lost, keeping, return_exceptions=True)
            self._events.publish(EventType.LEADER_LOST, details=details)
            with suppress(StoreUnavailableError):
                await self._membership.resign(leadership)

    async def _keep(self, leadership: Leadership) -> None:
        while True:
            self._changed.clear()
            try:
                await self._write_next(leadership)
            except LeadershipLostError:
                return
            except (StoreUnavailableError, FrozenError):
                await self._clock.sleep(RETRY_AFTER)
                continue
            await self._changed.wait()

    async def _write_next(self, leadership: Leadership) -> None:
        """Until the map is right by what the view shows."""
        while (following := self._next()) is not None:
            key = Key.shard_map()
            tx = Transaction().put(key, following, self._view.get(key))
            result = await self._committer.commit(tx, leadership)
            if isinstance(result, Committed):
                self._tell(following)
            elif await clear_unreadable(self._committer, leadership, key, tx, result):
                _log.warning("the shard map could not be read and is written anew")
            else:
                # Somebody was faster, or the view is late: it knows the truth by now.
                await self._clock.sleep(AGAIN_AFTER)

    def _next(self) -> ShardMap | None:
        present = {
            each.instance_id
            for each in self._view.values(Kind.REPLICA, ReplicaRecord)
            if each.ha_mode is HaMode.ELASTIC
        }
        seats = seats_in(self._view)
        return next_map(seats.map, present, seats.acknowledged)

    def _tell(self, following: ShardMap) -> None:
        members = ", ".join(following.members)
        self._events.publish(
            EventType.SHARDS_CHANGED,
            reason=f"version {following.version}: the nodes are shared by {members}",
            details={"version": str(following.version), "members": ",".join(following.members)},
        )

    def _on_change(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        if key.kind in COORDINATION:
            self._changed.set()

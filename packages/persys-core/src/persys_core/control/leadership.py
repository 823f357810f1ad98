"""LeadershipLoop: campaigns, or registers, and runs the loops that act as long as that holds.

Decided here: what a replica must have before it acts (decisions §3, §4): all that happened while
others acted, and a fresh grace for every node. Which nodes it acts for is decided in ``ownership``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from attrs import define

from persys_core.control.config import HaConfig
from persys_core.control.hand_over import HandOver
from persys_core.control.leading import LeadingLoops
from persys_core.control.ownership import ElasticShare, Ownership, StaticShard, WholeCluster
from persys_core.control.presence import HaMismatchError, Presence
from persys_core.control.standing import election_of
from persys_core.control.view import ClusterView
from persys_core.model.replica import HaMode
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import StoreUnavailableError
from persys_core.ports.membership import Leadership, Membership

__all__ = ["LeadershipLoop"]

RETRY_AFTER = timedelta(seconds=1)
_log = logging.getLogger("persys.scheduler")

Act = Callable[[Leadership, Ownership], Awaitable[LeadingLoops]]


@define(eq=False)
class LeadershipLoop:
    """One replica's way to act, and to stop acting.

    ``begin`` catches up and makes the loops of one leadership; ``end`` is told once they ended.
    ``on_bug`` takes exceptions that nobody expected; the loop outlives them.
    """

    _membership: Membership
    _presence: Presence
    _view: ClusterView
    _clock: Clock
    _config: HaConfig
    _begin: Act
    _end: Callable[[], None]
    _on_bug: Callable[[object, Exception], None]

    async def run(self) -> None:
        """Act whenever this replica may, until cancelled."""
        while True:
            try:
                leadership = await self._won()
            except StoreUnavailableError:
                await self._clock.sleep(RETRY_AFTER)
                continue
            try:
                await self._act_under(leadership)
            except HaMismatchError as error:
                _log.error("this replica does not act: %s", error)
                await self._clock.sleep(RETRY_AFTER)
            except Exception as error:  # the edge of a loop: it must outlive every bug
                self._on_bug("leadership", error)
            finally:
                self._end()
                with suppress(StoreUnavailableError):
                    await self._membership.resign(leadership)

    async def _won(self) -> Leadership:
        """In elastic mode whoever is registered may act, as far as the map says. In the others,
        too, the record comes first: a leader without one counts as a foreign scheduler."""
        registration = await self._presence.present()
        if self._config.mode is HaMode.ELASTIC:
            return registration
        return await self._membership.campaign(election_of(self._config))

    async def _act_under(self, leadership: Leadership) -> None:
        ownership = self._ownership(leadership)
        try:
            leading = await self._begin(leadership, ownership)
            # One that started at the same moment may only have come into sight by now.
            self._presence.check()
            if isinstance(ownership, ElasticShare):
                await leading.run(self._hand_over(leadership, ownership, leading))
            else:
                await leading.run()
        finally:
            if isinstance(ownership, ElasticShare):
                ownership.close()

    def _ownership(self, leadership: Leadership) -> Ownership:
        match self._config.mode:
            case HaMode.FAILOVER:
                return WholeCluster(leadership)
            case HaMode.ACTIVE_ACTIVE:
                return StaticShard(leadership, self._config.shard_index, self._config.shard_count)
            case HaMode.ELASTIC:
                return ElasticShare(self._view, leadership)

    def _hand_over(
        self, registration: Leadership, share: ElasticShare, leading: LeadingLoops
    ) -> HandOver:
        return HandOver(
            share,
            registration,
            self._membership,
            self._view,
            self._clock,
            leading.let_end,
            leading.nodes_taken,
        )

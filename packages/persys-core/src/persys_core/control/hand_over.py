"""HandOver: what a member of elastic mode does when the map changes: let go, say so, take up.

Decided here: that order, and how long what is under way for a lost node may take to come to its
end. What is longer is cut off, so that a call to a hanging agent does not keep the next owner
waiting; it was announced, so the next owner waits with that one workload alone (safety rule 3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from attrs import define, field

from persys_core.control.ownership import ElasticShare
from persys_core.control.view import ClusterView
from persys_core.model.ids import NodeId
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import (
    COORDINATION,
    Key,
    Record,
    StoreUnavailableError,
    Versioned,
)
from persys_core.ports.membership import Leadership, Membership, RegistrationLostError

__all__ = ["PATIENCE", "HandOver"]

PATIENCE = timedelta(milliseconds=500)
"""Most looks end within a few round trips; a clean change must not leave a node alone for longer
than a second."""
RETRY_AFTER = timedelta(milliseconds=200)
_log = logging.getLogger("persys.scheduler")


@define(eq=False)
class HandOver:
    """One member's part, under one registration.

    ``let_end``: waits until nothing is under way for these nodes, and cuts off what takes longer
    than ``PATIENCE``. ``taken``: has everything on these nodes looked at.
    """

    _share: ElasticShare
    _registration: Leadership
    _membership: Membership
    _view: ClusterView
    _clock: Clock
    _let_end: Callable[[frozenset[NodeId]], Awaitable[None]]
    _taken: Callable[[frozenset[NodeId]], None]
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def run(self) -> None:
        """Follow the map until the registration is lost or this is cancelled."""
        self._view.listen(self._on_change)
        try:
            while True:
                self._changed.clear()
                if not await self._settle():
                    await self._clock.sleep(RETRY_AFTER)
                    continue
                await self._changed.wait()
        except RegistrationLostError:
            return
        finally:
            self._view.unlisten(self._on_change)

    async def _settle(self) -> bool:
        """Do what the present map asks; whether all of it could be done."""
        version = self._share.unacknowledged
        if version:
            lost = self._share.let_go()
            if lost:
                await self._let_end(lost)
            try:
                await self._membership.acknowledge(self._registration, version)
            except StoreUnavailableError:
                return False
            _log.info("version %d of the shard map: %d nodes let go", version, len(lost - {""}))
        taken = self._share.take_up()
        if taken:
            _log.info("%d nodes taken up", len(taken - {""}))
            self._taken(taken)
        return True

    def _on_change(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        if key.kind in COORDINATION:
            self._changed.set()

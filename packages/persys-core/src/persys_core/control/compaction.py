"""Compaction: the leader lets the store forget the history that no watcher needs any more.

Decided here: how far back that is. A replica that was cut off for longer lists the records anew.
"""

from __future__ import annotations

from contextlib import suppress

from attrs import define, field

from persys_core.control.view import ClusterView
from persys_core.model.ids import StoreRevision
from persys_core.ports.cluster_store import ClusterStore, StoreUnavailableError

__all__ = ["Compaction"]


@define(eq=False)
class Compaction:
    """One leader's upkeep; a pass is made once in an interval, and forgets what is older."""

    _store: ClusterStore
    _view: ClusterView
    _noted: StoreRevision = field(default=0, init=False)
    """Where the view stood one pass ago."""

    async def run(self) -> None:
        """Compact to where the view stood one pass ago; a store that is away is met again."""
        noted, self._noted = self._noted, self._view.revision
        if 0 < noted <= self._noted:
            with suppress(StoreUnavailableError):
                await self._store.compact(noted)

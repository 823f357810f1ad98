"""Reads: how fresh this replica's view is, and the read-through that spares a wrong *not found*."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from persys_core.control.answers import Freshness
from persys_core.control.view import ClusterView
from persys_core.model.ids import StoreRevision, WorkloadId
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import ClusterStore, Key, StoreUnavailableError

__all__ = ["Reads"]


class Reads:
    """Freshness of one view.

    ``silence``: a store that has not answered for longer than this may have moved on, even while
    the watch seems to be up: a half-open connection brings no error (field report E02).
    """

    def __init__(
        self, store: ClusterStore, view: ClusterView, clock: Clock, silence: timedelta
    ) -> None:
        self._store = store
        self._view = view
        self._clock = clock
        self._silence = silence
        self._confirmed_at = clock.monotonic()
        self._moved = asyncio.Event()
        self.connected = False
        """Whether the watch is up; without it the view may fall behind unnoticed."""

    def confirm(self) -> None:
        """The store answered just now, so the view is as fresh as its watch."""
        self._confirmed_at = self._clock.monotonic()
        self._moved.set()
        self._moved = asyncio.Event()

    def freshness(self) -> Freshness:
        """From when the view's knowledge is; ``stale`` while the store or the watch is away."""
        age = timedelta(seconds=max(0.0, self._clock.monotonic() - self._confirmed_at))
        stale = not self.connected or age > self._silence
        return Freshness(self._view.revision, stale, age if stale else timedelta(0))

    async def through(self, *keys: Key) -> None:
        """Read from the store what the view does not know at all; others are left as they are.

        A store that is away is left to the caller's own write or answer to meet.
        """
        if self._view.get(keys[0]) is not None:
            return
        current = await self._store.get(keys)
        revision = max((found.revision for found in current.values() if found), default=0)
        self._view.refresh(revision, {key: found for key, found in current.items() if found})

    async def before_apply(self, workload_id: WorkloadId, expected: StoreRevision | None) -> None:
        """Read what an apply decides on, as ``through`` does.

        A revision that the caller expects is compared with the store's word and not with what this
        replica has heard so far: it may have been planned at another replica.
        """
        keys = (Key.workload(workload_id), Key.status(workload_id), Key.assignment(workload_id))
        if expected is None:
            return await self.through(*keys)
        return await self.again(*keys)

    async def again(self, *keys: Key) -> None:
        """Read from the store what the view may be behind with."""
        before = {key: self._view.get(key) for key in keys}
        for key, found in (await self._store.get(keys)).items():
            known = before[key]
            # What was known and is gone was removed at some revision after the known one.
            self._view.refresh(known.revision + 1 if known else 0, {key: found})

    async def reach(self, at_least: StoreRevision, timeout: timedelta) -> None:
        """Wait until the view has seen ``at_least``; StoreUnavailableError after ``timeout``."""
        if self._view.revision >= at_least:
            return
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while self._view.revision < at_least:
                    await self._moved.wait()
        except TimeoutError:
            raise StoreUnavailableError(
                f"this replica is at store revision {self._view.revision} and did not reach "
                f"{at_least} within {timeout.total_seconds():g} s; ask again or another replica"
            ) from None

"""Contract of ClusterStore: every record comes back as it was. Needs Hypothesis.

Subclass ``RecordContract`` beside ``ClusterStoreContract``, with the same ``backend`` fixture.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from persys_core.ports.cluster_store import Delete, Guarantee, Put, WatchBatch
from persys_core.testing.cluster_store_backend import (
    ClusterStoreBackend,
    commit_of,
    committed,
    next_event,
    opened,
    watching,
)
from persys_core.testing.strategies import Entry, with_entries

__all__ = ["RecordContract"]


@pytest.mark.asyncio
class RecordContract:
    """No field of any record is lost or changed by the store, on any way out of it."""

    @with_entries()
    async def test_every_record_comes_back(
        self, backend: ClusterStoreBackend, written: Sequence[Entry]
    ) -> None:
        """Snapshot, read and conflict show each record exactly as it was committed."""
        async with opened(backend) as store:
            await committed(store, commit_of(*(Put(key, value) for key, value in written)))
            snapshot = await store.snapshot()
            assert {key: found.value for key, found in snapshot.records.items()} == dict(written)
            assert snapshot.quarantined == ()
            found = await store.get([key for key, _ in written])
            assert found == snapshot.records
            await committed(store, commit_of(*(Delete(key) for key, _ in written)))

    @with_entries()
    async def test_every_record_is_watched(
        self, backend: ClusterStoreBackend, written: Sequence[Entry]
    ) -> None:
        """A watch shows each record exactly as it was committed."""
        async with opened(backend) as store:
            if Guarantee.WATCH not in store.guarantees or not written:
                return
            start = await store.probe()
            await committed(store, commit_of(*(Put(key, value) for key, value in written)))
            async with watching(store, start) as watch:
                event = await next_event(watch)
            assert isinstance(event, WatchBatch)
            seen = {change.key: change.current for change in event.changes}
            assert {key: current and current.value for key, current in seen.items()} == dict(
                written
            )
            await committed(store, commit_of(*(Delete(key) for key, _ in written)))

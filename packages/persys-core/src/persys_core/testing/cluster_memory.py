"""The contract of a ClusterMemory: subclass it and give the fixture ``open_memory``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from persys_core.modes.evidence import Known
from persys_core.ports.cluster_memory import ClusterMemory

__all__ = ["ClusterMemoryContract"]


@pytest.mark.asyncio
class ClusterMemoryContract:
    """``open_memory`` opens the same memory again, as a restarted process would."""

    async def test_nothing_is_known_at_first(
        self, open_memory: Callable[[], ClusterMemory]
    ) -> None:
        """A replica that never saw a cluster knows none."""
        assert await open_memory().load() is None

    async def test_the_last_word_is_kept(self, open_memory: Callable[[], ClusterMemory]) -> None:
        """What was saved last is known after a restart, field by field."""
        await open_memory().save(Known("c-1", "backend", 7))
        last = Known("c-1", "backend", 9, ("n1", "n2"), epoch_base=1_767_225_600_000)
        await open_memory().save(last)
        assert await open_memory().load() == last

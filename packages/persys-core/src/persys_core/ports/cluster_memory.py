"""ClusterMemory: what a replica remembers of its cluster, apart from the store.

Duties: ``load`` gives back what ``save`` kept last, also after a crash in the middle of a save;
nothing else may change it. It is what tells a store that was lost, emptied or put back to an older
state from one that is new (decisions §4, recovery). A memory that cannot be read or written is an
error of ``PersysError`` with what to do; it never stops what runs.
"""

from __future__ import annotations

from typing import Protocol

from persys_core.modes.evidence import Known

__all__ = ["ClusterMemory"]


class ClusterMemory(Protocol):
    """One replica's memory of one cluster."""

    async def load(self) -> Known | None:
        """What was known last; ``None`` where nothing ever was."""
        ...

    async def save(self, known: Known) -> None:
        """Remember ``known``, durably where the implementation is durable."""
        ...

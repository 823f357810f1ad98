"""A memory of the cluster that ends with the process; shared, it outlives simulated ones."""

from __future__ import annotations

from persys_core.modes.evidence import Known

__all__ = ["MemoryClusterMemory"]


class MemoryClusterMemory:
    """Keeps one value."""

    def __init__(self) -> None:
        self._known: Known | None = None

    async def load(self) -> Known | None:
        """What was saved last."""
        return self._known

    async def save(self, known: Known) -> None:
        """Keep it."""
        self._known = known

"""An observer that counts, for tests and the simulator; a bug counted here fails a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from persys_core.ports.observer import Metric
from persys_core.ports.tracer import NullTracer

__all__ = ["CountingObserver"]


class CountingObserver(NullTracer):
    """Counts per metric and label set, and the number of durations per metric."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Metric, tuple[tuple[str, str], ...]]] = Counter()

    def increment(self, metric: Metric, labels: Mapping[str, str], by: int = 1) -> None:
        """Count."""
        self._counts[metric, tuple(sorted(labels.items()))] += by

    def record(self, metric: Metric, seconds: float, labels: Mapping[str, str]) -> None:
        """Count the measurement."""
        self.increment(metric, labels)

    def count(self, metric: Metric, **labels: str) -> int:
        """The sum over all label sets that hold ``labels``."""
        wanted = set(labels.items())
        return sum(
            count
            for (counted, given), count in self._counts.items()
            if counted is metric and wanted <= set(given)
        )

"""Telemetry in the memory of one replica: the latest measurements, bounded in number and age."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Generic, TypeVar

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.ports.clock import Clock

__all__ = ["MemoryTelemetry"]

DEFAULT_CAPACITY = 100_000
DEFAULT_TTL = timedelta(hours=24)

_K = TypeVar("_K")
_V = TypeVar("_V")


class _Latest(Generic[_K, _V]):
    """The latest value per key; the one that was not written for longest goes first."""

    def __init__(self, capacity: int, clock: Clock | None, ttl: timedelta) -> None:
        self._values: OrderedDict[_K, tuple[float, _V]] = OrderedDict()
        self._capacity = capacity
        self._clock = clock
        self._ttl = ttl.total_seconds()

    def put(self, key: _K, value: _V) -> None:
        self._values[key] = (self._now() + self._ttl, value)
        self._values.move_to_end(key)
        if len(self._values) > self._capacity:
            self._values.popitem(last=False)

    def get(self, key: _K) -> _V | None:
        ends, value = self._values.get(key, (0.0, None))
        if value is not None and self._clock is not None and self._now() >= ends:
            del self._values[key]
            return None
        return value

    def values(self) -> Iterator[_V]:
        now = self._now()
        for ends, value in list(self._values.values()):
            if self._clock is None or now < ends:
                yield value

    def drop(self, key: _K) -> None:
        self._values.pop(key, None)

    def _now(self) -> float:
        return self._clock.monotonic() if self._clock else 0.0


class MemoryTelemetry:
    """Keeps at most ``capacity`` values of each kind; with a clock each ends after ``ttl``."""

    def __init__(
        self,
        capacity: int = DEFAULT_CAPACITY,
        clock: Clock | None = None,
        ttl: timedelta = DEFAULT_TTL,
    ) -> None:
        self._nodes: _Latest[NodeId, NodeUsage] = _Latest(capacity, clock, ttl)
        self._workloads: _Latest[WorkloadId, WorkloadUsage] = _Latest(capacity, clock, ttl)
        self._facts: _Latest[WorkloadId, Mapping[str, str]] = _Latest(capacity, clock, ttl)

    def record_node_usage(self, usage: NodeUsage) -> None:
        """Keep ``usage`` as the node's latest."""
        self._nodes.put(usage.node_id, usage)

    def record_workload_usage(self, usage: WorkloadUsage) -> None:
        """Keep ``usage`` as the workload's latest."""
        self._workloads.put(usage.workload_id, usage)

    def record_reconciliation(self, workload_id: WorkloadId, facts: Mapping[str, str]) -> None:
        """Keep the last reconcile outcome of a workload, for people."""
        self._facts.put(workload_id, dict(facts))

    def reconciliation(self, workload_id: WorkloadId) -> Mapping[str, str] | None:
        """What ``record_reconciliation`` kept last; for people and tests."""
        return self._facts.get(workload_id)

    def node_usage(self, node_id: NodeId) -> NodeUsage | None:
        """The latest measurement of the node that has not ended."""
        return self._nodes.get(node_id)

    def workload_usage(self, workload_id: WorkloadId) -> WorkloadUsage | None:
        """The latest measurement of the workload that has not ended."""
        return self._workloads.get(workload_id)

    def workload_usages(self) -> Iterable[WorkloadUsage]:
        """Every measurement of a workload that has not ended."""
        return self._workloads.values()

    def forget_workload(self, workload_id: WorkloadId) -> None:
        """The workload is gone; so is what was kept of it."""
        self._workloads.drop(workload_id)
        self._facts.drop(workload_id)

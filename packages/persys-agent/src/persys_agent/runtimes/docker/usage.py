"""What containers use, from two samples of the Engine.

Decided here: CPU is the share of one core between two samples (defect 34: never the average since
the container began); memory is without the page cache that can be given back; block and network
bytes are the Engine's counters since the container began, as agents report them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from attrs import frozen

from persys_agent.runtimes.docker.documents import (
    Document,
    document,
    instant,
    items,
    number,
    text,
)
from persys_agent.runtimes.docker.engine import EngineError
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage

__all__ = [
    "ContainerUse",
    "Sample",
    "StatsSource",
    "UsageMeter",
    "sample",
    "total_usage",
    "use_between",
]

_NANOS_PER_SECOND = 1_000_000_000
_CACHES = ("total_inactive_file", "inactive_file")
"""As cgroup v1 and v2 call it."""


@frozen
class Sample:
    """The Engine's counters at one instant; bytes, and nanoseconds of CPU."""

    at: datetime
    cpu_nanos: int
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int


@frozen
class ContainerUse:
    """A sample, with the CPU used since the one before in percent of one core."""

    cpu_percent: float
    sample: Sample


def sample(stats: Document) -> Sample | None:
    """The counters; ``None`` where the container does not run."""
    taken = instant(stats, "read")
    if taken is None or not number(stats, "cpu_stats", "cpu_usage", "total_usage"):
        return None
    networks = document(stats, "networks")
    return Sample(
        at=taken,
        cpu_nanos=number(stats, "cpu_stats", "cpu_usage", "total_usage"),
        memory_bytes=_memory(document(stats, "memory_stats")),
        disk_read_bytes=_block(stats, "read"),
        disk_write_bytes=_block(stats, "write"),
        net_rx_bytes=sum(number(networks, each, "rx_bytes") for each in networks),
        net_tx_bytes=sum(number(networks, each, "tx_bytes") for each in networks),
    )


def total_usage(
    workload_id: WorkloadId,
    node_id: NodeId,
    kind: WorkloadType,
    source: str,
    uses: Sequence[ContainerUse],
) -> WorkloadUsage:
    """What the containers of one workload use together; there is at least one."""
    samples = [each.sample for each in uses]
    return WorkloadUsage(
        workload_id=workload_id,
        node_id=node_id,
        type=str(kind),
        cpu_percent=sum(each.cpu_percent for each in uses),
        memory_bytes=sum(each.memory_bytes for each in samples),
        disk_read_bytes=sum(each.disk_read_bytes for each in samples),
        disk_write_bytes=sum(each.disk_write_bytes for each in samples),
        net_rx_bytes=sum(each.net_rx_bytes for each in samples),
        net_tx_bytes=sum(each.net_tx_bytes for each in samples),
        collected_at=max(each.at for each in samples),
        source=source,
    )


def use_between(before: Sample, after: Sample) -> ContainerUse:
    """The use at ``after``; a counter that went back began anew."""
    seconds = (after.at - before.at).total_seconds()
    nanos = after.cpu_nanos - before.cpu_nanos
    nanos = after.cpu_nanos if nanos < 0 else nanos
    percent = 100.0 * nanos / _NANOS_PER_SECOND / seconds if seconds > 0 else 0.0
    return ContainerUse(percent, after)


class StatsSource(Protocol):
    """What gives the counters of a container; ``None`` where it is gone."""

    async def stats(self, container_id: str) -> Document | None:
        """One sample, in the Engine's JSON."""
        ...


class UsageMeter:
    """Remembers the last sample of each container."""

    def __init__(self, engine: StatsSource, first_sample: timedelta, concurrent: int) -> None:
        self._engine = engine
        self._first_seconds = first_sample.total_seconds()
        self._slots = asyncio.Semaphore(concurrent)
        self._last: dict[str, Sample] = {}

    async def measure(self, container_ids: Iterable[str]) -> Mapping[str, ContainerUse]:
        """The use of each container that runs, since the last call; all are asked at once."""
        wanted = tuple(container_ids)
        before = {each: self._last[each] for each in wanted if each in self._last}
        if new := [each for each in wanted if each not in before]:
            before |= await self._samples(new)
            await asyncio.sleep(self._first_seconds)
        after = await self._samples(wanted)
        self._last = dict(after)
        return {
            each: use_between(before[each], found)
            for each, found in after.items()
            if each in before
        }

    async def _samples(self, container_ids: Iterable[str]) -> dict[str, Sample]:
        wanted = tuple(container_ids)
        found = await asyncio.gather(*map(self._sample, wanted))
        return {name: each for name, each in zip(wanted, found, strict=True) if each is not None}

    async def _sample(self, container_id: str) -> Sample | None:
        async with self._slots:
            try:
                stats = await self._engine.stats(container_id)
            except EngineError:  # it ended between the list and the question
                return None
        return None if stats is None else sample(stats)


def _memory(stats: Document) -> int:
    used = number(stats, "usage")
    counters = document(stats, "stats")
    cache = next((number(counters, each) for each in _CACHES if each in counters), 0)
    return max(0, used - cache)


def _block(stats: Document, operation: str) -> int:
    """The bytes of all devices; cgroup v1 writes ``Read`` what v2 writes ``read``."""
    return sum(
        number(each, "value")
        for each in items(stats, "blkio_stats", "io_service_bytes_recursive")
        if text(each, "op").lower() == operation
    )

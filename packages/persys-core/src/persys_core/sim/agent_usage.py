"""Utilisation that a simulated workload shows: made up, plausible, and the same in every run.

Decided here: the shape. Each workload has a level of its own, drawn from the seed and its id; the
processor share swings around it, byte counters grow with the time that it has been running.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from datetime import datetime

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.resources import Resources
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.sim.agent_runtime import RuntimeObject
from persys_core.sim.rng import stream

__all__ = ["node_usage", "workload_usage"]

_SWING_SECONDS = 300.0
_SOURCES = {"container": "docker.stats", "compose": "compose.stats"}
_MIB = 1024 * 1024


def workload_usage(
    seed: int, node_id: NodeId, found: RuntimeObject, now: datetime
) -> WorkloadUsage:
    """A snapshot of one running object."""
    request = found.spec.resources
    share, phase, fill, read, written, received, sent = _shares(seed, found.workload_id)
    seconds = (now - (found.started_at or now)).total_seconds()
    swing = 1 + 0.25 * math.sin(2 * math.pi * (seconds / _SWING_SECONDS + phase))
    return WorkloadUsage(
        workload_id=found.workload_id,
        node_id=node_id,
        type=found.spec.type,
        cpu_percent=round(max(request.cpu_millicores, 50) / 10 * share * 0.8 * swing, 2),
        memory_bytes=int(max(request.memory_mb, 64) * _MIB * (0.3 + 0.5 * fill)),
        disk_read_bytes=int(seconds * read * 200_000),
        disk_write_bytes=int(seconds * written * 100_000),
        net_rx_bytes=int(seconds * received * 500_000),
        net_tx_bytes=int(seconds * sent * 300_000),
        collected_at=now,
        source=_SOURCES.get(found.spec.type, "libvirt.domain_stats"),
    )


def node_usage(node_id: NodeId, each: Iterable[WorkloadUsage], now: datetime) -> NodeUsage:
    """What the host measures: its running workloads and a little for itself."""
    running = list(each)
    used = Resources.of(
        cpu_millicores=100 + sum(round(usage.cpu_percent * 10) for usage in running),
        memory_mb=512 + sum(usage.memory_bytes // _MIB for usage in running),
        disk_gb=2 + len(running),
    )
    return NodeUsage(node_id, used, now)


@functools.lru_cache(maxsize=10_000)
def _shares(seed: int, workload_id: WorkloadId) -> tuple[float, ...]:
    """The seven traits of a workload, each 0 to 1."""
    rng = stream(seed, "usage", workload_id)
    return tuple(rng.random() for _ in range(7))

"""Measured use of nodes and workloads: telemetry, never a basis of what is admitted."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.resources import Resources

__all__ = ["NodeUsage", "WorkloadUsage"]


@frozen
class NodeUsage:
    """What a node measured of itself; ``used`` in the units of ``Resources``."""

    node_id: NodeId
    used: Resources
    reported_at: datetime


@frozen
class WorkloadUsage:
    """One utilisation snapshot of a workload; bytes, and percent of one core."""

    workload_id: WorkloadId
    node_id: NodeId
    type: str
    cpu_percent: float
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int
    collected_at: datetime
    source: str

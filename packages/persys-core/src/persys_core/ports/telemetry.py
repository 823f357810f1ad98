"""Telemetry: measured use and reconciliation metadata; copies for people, never for decisions.

Duties: like the event log, ``record_*`` never raises and never waits. Values end by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.usage import NodeUsage, WorkloadUsage

__all__ = ["Telemetry"]


class Telemetry(Protocol):
    """The latest measurement per node and per workload."""

    def record_node_usage(self, usage: NodeUsage) -> None:
        """Keep ``usage`` as the node's latest."""
        ...

    def record_workload_usage(self, usage: WorkloadUsage) -> None:
        """Keep ``usage`` as the workload's latest."""
        ...

    def record_reconciliation(self, workload_id: WorkloadId, facts: Mapping[str, str]) -> None:
        """Keep the last reconcile outcome of a workload, for people.

        ``facts``: ``action``, ``success`` (``true`` or ``false``), ``reason``, ``attemptedAt``
        (RFC 3339), ``retryCount``, ``status`` and ``nodeId``; each may be missing.
        """
        ...

    def node_usage(self, node_id: NodeId) -> NodeUsage | None:
        """The latest measurement known to this replica."""
        ...

    def workload_usage(self, workload_id: WorkloadId) -> WorkloadUsage | None:
        """The latest measurement known to this replica."""
        ...

    def workload_usages(self) -> Iterable[WorkloadUsage]:
        """The latest measurement of every workload, in no order; for metrics."""
        ...

    def forget_workload(self, workload_id: WorkloadId) -> None:
        """The workload is gone; so are its series."""
        ...

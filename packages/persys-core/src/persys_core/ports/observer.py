"""Observer: counts, durations and spans of what the core does. Never raises, never waits.

Label sets are closed (field report M02): actions, results, categories and codes; never an id or
a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from persys_core.ports.tracer import NullTracer, Tracer

__all__ = ["Metric", "NullObserver", "Observer"]


class Metric(StrEnum):
    """What is counted or timed; the comment names the labels."""

    RECONCILE_RESULTS = "reconciliation_results"  # action, success
    RECONCILE_CYCLES = "reconciliation_cycles"  # result
    RECONCILE_CYCLE_SECONDS = "reconciliation_cycle_seconds"  # -
    STORE_WRITES = "state_store_writes"  # category
    STORE_FAILURES = "state_store_failures"  # -
    COMMIT_CONFLICTS = "commit_conflicts"  # -
    PLACEMENTS = "placements"  # result
    STALE_HEARTBEATS = "stale_heartbeats"  # -
    AGENT_CALLS = "agent_calls"  # rpc, result
    LEDGER_REPAIRS = "ledger_repairs"  # -
    EVICTIONS = "evictions"  # result
    EVENTS_DROPPED = "events_dropped"  # reason
    TELEMETRY_DROPPED = "telemetry_dropped"  # reason
    BUGS = "bugs"  # where


class Observer(Tracer, Protocol):
    """Where the core reports to."""

    def increment(self, metric: Metric, labels: Mapping[str, str], by: int = 1) -> None:
        """Add ``by`` to a counter."""
        ...

    def record(self, metric: Metric, seconds: float, labels: Mapping[str, str]) -> None:
        """One duration in seconds."""
        ...


class NullObserver(NullTracer):
    """Looks away; for embedders and tests that do not measure."""

    def increment(self, metric: Metric, labels: Mapping[str, str], by: int = 1) -> None:
        """Count nothing."""

    def record(self, metric: Metric, seconds: float, labels: Mapping[str, str]) -> None:
        """Time nothing."""

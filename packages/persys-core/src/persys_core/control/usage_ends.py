"""What was measured of a workload ends with it, on every replica that was told of it.

Decided here: that the end of the workload's record is that end. The leader sees a deletion through;
the others, which may have got the heartbeats, only see the record go.
"""

from __future__ import annotations

from persys_core.control.view import ClusterView
from persys_core.ports.cluster_store import Key, Kind, Record, Versioned
from persys_core.ports.telemetry import Telemetry

__all__ = ["end_usage_with_work"]


def end_usage_with_work(view: ClusterView, telemetry: Telemetry) -> None:
    """Have ``telemetry`` forget each workload that leaves ``view``."""

    def on_change(
        key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        if key.kind is Kind.WORKLOAD and after is None:
            telemetry.forget_workload(key.id)

    view.listen(on_change)

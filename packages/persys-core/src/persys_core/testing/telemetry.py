"""Contract of Telemetry. Subclass ``TelemetryContract`` and give it a ``telemetry`` fixture."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from persys_core.model.resources import Resources
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.ports.telemetry import Telemetry

__all__ = ["TelemetryContract"]

AT = datetime(2026, 1, 1, tzinfo=UTC)


def _node_usage(cpu_millicores: int, node_id: str = "n1") -> NodeUsage:
    return NodeUsage(node_id, Resources.of(cpu_millicores=cpu_millicores), AT)


def _workload_usage(memory_bytes: int, workload_id: str = "w1") -> WorkloadUsage:
    return WorkloadUsage(
        workload_id, "n1", "container", 12.5, memory_bytes, 1, 2, 3, 4, AT, "docker-stats"
    )


@pytest.mark.asyncio
class TelemetryContract:
    """The latest value per node and workload, as this replica knows it."""

    async def test_unknown_is_none(self, telemetry: Telemetry) -> None:
        """What was never measured reads as None."""
        assert telemetry.node_usage("n1") is None
        assert telemetry.workload_usage("w1") is None

    async def test_the_latest_wins(self, telemetry: Telemetry) -> None:
        """A later measurement replaces the earlier one of the same thing, and no other."""
        telemetry.record_node_usage(_node_usage(100))
        telemetry.record_node_usage(_node_usage(5, "n2"))
        telemetry.record_node_usage(_node_usage(200))
        telemetry.record_workload_usage(_workload_usage(1))
        telemetry.record_workload_usage(_workload_usage(2))
        assert telemetry.node_usage("n1") == _node_usage(200)
        assert telemetry.node_usage("n2") == _node_usage(5, "n2")
        assert telemetry.workload_usage("w1") == _workload_usage(2)

    async def test_forgotten_is_gone(self, telemetry: Telemetry) -> None:
        """A workload that ended has no measurement; forgetting it twice is no error."""
        telemetry.record_workload_usage(_workload_usage(1))
        telemetry.record_workload_usage(_workload_usage(1, "w2"))
        telemetry.record_reconciliation("w1", {"action": "NoAction"})
        telemetry.forget_workload("w1")
        telemetry.forget_workload("w1")
        assert telemetry.workload_usage("w1") is None
        assert telemetry.workload_usage("w2") == _workload_usage(1, "w2")
        assert list(telemetry.workload_usages()) == [_workload_usage(1, "w2")]

    async def test_recording_never_raises(self, telemetry: Telemetry) -> None:
        """Any number of values and any facts are taken without an error and without waiting."""
        for number in range(2000):
            telemetry.record_workload_usage(_workload_usage(number, f"w{number}"))
        telemetry.record_reconciliation("", {"": "", "ключ": "\x00"})
        assert telemetry.workload_usage("w1999") == _workload_usage(1999, "w1999")

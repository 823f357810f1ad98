"""Telemetry in memory is bounded in number and in age."""

from datetime import timedelta

import pytest

from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.resources import Resources
from persys_core.model.usage import NodeUsage
from persys_core.testing.manual_clock import ManualClock


def usage(node_id: str, clock: ManualClock) -> NodeUsage:
    return NodeUsage(node_id, Resources.of(cpu_millicores=1), clock.now())


def test_the_oldest_goes_first() -> None:
    """Beyond the capacity the value that was not renewed for longest is dropped."""
    clock = ManualClock()
    telemetry = MemoryTelemetry(capacity=2)
    for node_id in ("n1", "n2", "n1", "n3"):
        telemetry.record_node_usage(usage(node_id, clock))
    assert telemetry.node_usage("n2") is None
    assert telemetry.node_usage("n1") is not None
    assert telemetry.node_usage("n3") is not None


@pytest.mark.asyncio
async def test_values_end_by_themselves() -> None:
    """With a clock a value ends after its lifetime, counted from its last renewal."""
    clock = ManualClock()
    telemetry = MemoryTelemetry(clock=clock, ttl=timedelta(minutes=1))
    telemetry.record_node_usage(usage("n1", clock))
    telemetry.record_reconciliation("w1", {"action": "NoAction"})
    await clock.advance(timedelta(seconds=59))
    assert telemetry.node_usage("n1") is not None
    assert telemetry.reconciliation("w1") == {"action": "NoAction"}
    await clock.advance(timedelta(seconds=1))
    assert telemetry.node_usage("n1") is None
    assert telemetry.reconciliation("w1") is None

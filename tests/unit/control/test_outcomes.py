"""What each look at a workload came to is told to the telemetry, for people."""

from __future__ import annotations

from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.ports.observer import Metric
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster


def telemetry(driver: Driver) -> MemoryTelemetry:
    found = driver.cluster.api().ports.telemetry
    assert isinstance(found, MemoryTelemetry)
    return found


@virtual_time()
async def test_a_look_is_told_with_its_action_and_reason(clock: VirtualClock) -> None:
    """The facts have the names that the reference's readers know."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        facts = telemetry(driver).reconciliation("w")
        assert facts is not None
        assert (facts["success"], facts["status"], facts["nodeId"]) == ("true", "Running", "n1")
        assert facts["action"] in ("Settle", "NoAction")
        assert facts["reason"]
        assert facts["attemptedAt"].endswith("Z")
        assert facts["retryCount"] == "0"


@virtual_time()
async def test_a_look_that_counts_a_failure_did_not_succeed(clock: VirtualClock) -> None:
    """The reason is then the failure, and the number of tries is told; the wait for the next try
    is no outcome."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("broken", container("missing"))
        failed = []
        for _ in range(240):
            await driver.wait(seconds=0.25)
            facts = telemetry(driver).reconciliation("broken") or {}
            failed += [facts] if facts.get("success") == "false" else []
        assert failed
        assert int(failed[-1]["retryCount"]) >= 1
        assert {facts["action"] for facts in failed} <= {"RecordFailure", "ReapplyRunning"}
        observer = driver.cluster.replicas[-1].observer
        assert observer.count(Metric.RECONCILE_RESULTS, success="false") >= 1
        assert observer.count(Metric.RECONCILE_RESULTS, success="true") >= 1


@virtual_time()
async def test_what_is_gone_leaves_nothing_behind(clock: VirtualClock) -> None:
    """Reference defect B6: the look that ends a deletion is not told after it."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=30)
        assert telemetry(driver).reconciliation("w") is None

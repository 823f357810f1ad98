from __future__ import annotations

from pathlib import Path

from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench, apply_message


@virtual_time()
async def test_what_happens_is_counted(clock: VirtualClock, tmp_path: Path) -> None:
    """Applies, deletes, failures by code, passes, and gauges that go back to 0 (A12)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message("good"))
        await node.applied(apply_message("bad", image="missing"))
        await node.look()

        def page() -> str:
            node.assembly.refresh_metrics()
            return node.assembly.counting.metrics.page("")[0].decode()

        seen = page()
        for line in (
            "persys_agent_workload_created_total 1.0",
            "persys_agent_workload_failed_total 1.0",
            "persys_agent_workload_reconcile_total 1.0",
            'persys_agent_errors_total{error_code="INVALID_IMAGE"} 1.0',
            'persys_agent_workload_count{state="running",type="container"} 1.0',
            'persys_agent_workload_count{state="failed",type="container"} 1.0',
            'persys_agent_task_executions_total{status="completed",type="apply_workload"} 1.0',
            'persys_agent_runtime_health_status{runtime_type="vm"} 1.0',
        ):
            assert line in seen, line
        await node.delete("good")
        await node.settled()
        seen = page()
        assert 'persys_agent_workload_count{state="running",type="container"} 0.0' in seen
        assert "persys_agent_workload_deleted_total 1.0" in seen


@virtual_time()
async def test_a_failed_repair_is_an_error_too(clock: VirtualClock, tmp_path: Path) -> None:
    """Under its code, and no apply is counted for it."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        bench.host.lose("w1")
        broken = RuntimeFailedError(FailureCode.STORAGE_FULL, "no space left on device")
        bench.host.faults.fail("create", broken)
        await node.look()
        seen = node.assembly.counting.metrics.page("")[0].decode()
        assert 'persys_agent_errors_total{error_code="STORAGE_FULL"} 1.0' in seen
        assert "persys_agent_workload_failed_total 0.0" in seen

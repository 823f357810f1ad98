"""The agent's metrics and health over HTTP: the names of the field, and the truth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest
import pytest_asyncio

from persys_agent.host.usage import HostUse
from persys_agent.metrics.families import AgentMetrics
from persys_agent.metrics.server import CannotListenError, Health, MetricsServer
from persys_core.model.observation import AgentState
from persys_core.model.states import WorkloadType

SECOND = timedelta(seconds=1)


def value(metrics: AgentMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"persys_agent_{name}", labels)


def test_a_state_that_nothing_is_in_counts_zero() -> None:
    """From the start, and again once the last one left it (defect 12)."""
    metrics = AgentMetrics()
    labels = {"state": "running", "type": "container"}
    assert value(metrics, "workload_count", **labels) == 0
    running = (AgentState.RUNNING, WorkloadType.CONTAINER)
    metrics.workloads([running, running, (AgentState.FAILED, WorkloadType.VM)])
    assert value(metrics, "workload_count", **labels) == 2
    metrics.workloads([])
    assert value(metrics, "workload_count", **labels) == 0
    assert value(metrics, "workload_count", state="failed", type="vm") == 0


def test_every_family_is_written() -> None:
    """Each of the field's names has its value after what it counts happened (defect 12)."""
    metrics = AgentMetrics()
    metrics.applied(SECOND, created=True, failed=False)
    metrics.applied(SECOND, created=False, failed=True)
    metrics.deleted(SECOND, failed=False)
    metrics.reconciled(SECOND)
    metrics.runtimes({WorkloadType.CONTAINER: True})
    metrics.host(HostUse(cpu_percent=10, memory_percent=20, disk_percent=30))
    metrics.error("INVALID_IMAGE")
    metrics.error("whatever a runtime says")
    metrics.orphans({WorkloadType.COMPOSE: 3})
    metrics.queued(4)
    metrics.task("apply_workload", SECOND, failed=True)
    assert value(metrics, "workload_created_total") == 1
    assert value(metrics, "workload_failed_total") == 1
    assert value(metrics, "workload_deleted_total") == 1
    assert value(metrics, "workload_reconcile_total") == 1
    assert value(metrics, "workload_apply_duration_seconds_count") == 2
    assert value(metrics, "workload_delete_duration_seconds_sum") == 1
    assert value(metrics, "workload_reconcile_duration_seconds_count") == 1
    assert value(metrics, "runtime_health_status", runtime_type="container") == 1
    assert value(metrics, "runtime_health_status", runtime_type="vm") == 0
    assert value(metrics, "system_cpu_utilization_percent") == 10
    assert value(metrics, "system_memory_utilization_percent") == 20
    assert value(metrics, "system_disk_utilization_percent", mount_point="/") == 30
    assert value(metrics, "errors_total", error_code="INVALID_IMAGE") == 1
    assert value(metrics, "errors_total", error_code="OTHER") == 1
    orphans = "garbage_collection_orphaned_resources_found"
    assert value(metrics, orphans, resource_type="compose") == 3
    assert value(metrics, "task_queue_depth") == 4
    failed = {"type": "apply_workload", "status": "failed"}
    assert value(metrics, "task_latency_seconds_count", **failed) == 1
    assert value(metrics, "task_executions_total", **failed) == 1
    assert value(metrics, "task_failures_total", type="apply_workload") == 1


class Agent:
    """What the server asks."""

    def __init__(self) -> None:
        self.health = Health(True, runtimes={"container": "healthy"})
        self.is_broken = False
        self.refreshed = 0

    async def how(self) -> Health:
        if self.is_broken:
            raise RuntimeError("sesame")
        return self.health

    def refresh(self) -> None:
        self.refreshed += 1


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest_asyncio.fixture
async def server(agent: Agent) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(AgentMetrics(), agent.how, refresh=agent.refresh)
    await server.start("127.0.0.1", 0)
    yield server
    await server.stop()


async def get(server: MetricsServer, path: str) -> tuple[int, str, str]:
    url = f"http://127.0.0.1:{server.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, answer.content_type, await answer.text()


@pytest.mark.asyncio
async def test_metrics_are_as_they_are_now(server: MetricsServer, agent: Agent) -> None:
    """Gauges are set before each page."""
    status, kind, page = await get(server, "/metrics")
    assert (status, kind) == (200, "text/plain")
    assert "persys_agent_workload_count" in page
    assert "process_resident_memory_bytes" in page
    assert agent.refreshed == 1


@pytest.mark.asyncio
async def test_health_tells_the_truth(server: MetricsServer, agent: Agent) -> None:
    """200 while it is well, 503 with the reason otherwise, and each runtime's word."""
    status, kind, body = await get(server, "/health")
    assert (status, kind) == (200, "application/json")
    assert json.loads(body) == {"status": "healthy", "runtimes": {"container": "healthy"}}
    agent.health = Health(False, "no runtime answers", {"container": "unhealthy: gone"})
    status, _, body = await get(server, "/health")
    assert status == 503
    assert json.loads(body) == {
        "status": "unhealthy",
        "reason": "no runtime answers",
        "runtimes": {"container": "unhealthy: gone"},
    }


@pytest.mark.asyncio
async def test_who_cannot_say_how_it_is_is_not_well(server: MetricsServer, agent: Agent) -> None:
    """A bug in asking is unhealthy, and its text stays in the log."""
    agent.is_broken = True
    status, _, body = await get(server, "/health")
    assert status == 503
    assert "sesame" not in body


@pytest.mark.asyncio
async def test_a_port_that_is_taken_ends_the_start(server: MetricsServer) -> None:
    """The place is told, and the settings to change (defect 42)."""
    second = MetricsServer(AgentMetrics(), Agent().how)
    with pytest.raises(CannotListenError, match=f"127.0.0.1:{server.port} .*metrics_port"):
        await second.start("127.0.0.1", server.port)
    await second.stop()


@pytest.mark.asyncio
async def test_requests_at_once(server: MetricsServer) -> None:
    """Several scrapes do not disturb one another."""
    answers = await asyncio.gather(*(get(server, "/metrics") for _ in range(5)))
    assert {status for status, _, _ in answers} == {200}

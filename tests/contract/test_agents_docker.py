"""What real agents do where the contract's tests are about those of the field."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta

import pytest
import pytest_asyncio

from persys_core.model.node import Node
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.agents import Accepted, ApplyRequest, Refused, Unreachable
from tests.contract.test_agents_grpc import GrpcWorld, open_world
from tests.fleets.choice import CHOSEN, AgentChoice

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

TIMEOUT = timedelta(seconds=5)
SECRET = "s3cr3t-XYZ"


@pytest.fixture(autouse=True, scope="module")
def _agents() -> Iterator[AgentChoice]:
    """Whatever was chosen for other suites."""
    before, CHOSEN.agents = CHOSEN.agents, AgentChoice.DOCKER
    yield AgentChoice.DOCKER
    CHOSEN.agents = before


@pytest_asyncio.fixture
async def world() -> AsyncIterator[GrpcWorld]:
    """One node."""
    async with open_world() as opened:
        yield opened


def wish(body: ContainerSpec, workload_id: str = "w1") -> ApplyRequest:
    """An apply of a container."""
    resources = Resources.of(cpu_millicores=100, memory_mb=64)
    spec = WorkloadSpec(WorkloadType.CONTAINER, resources, body)
    return ApplyRequest(workload_id, "r1", DesiredState.RUNNING, spec, 1)


async def until(world: GrpcWorld, node: Node, holds: Callable[[AgentReport], bool]) -> AgentReport:
    """Wait for a report of w1."""
    async with asyncio.timeout(20):
        while True:
            report = await world.agents.status(node, "w1", TIMEOUT)
            if isinstance(report, AgentReport) and holds(report):
                return report
            await asyncio.sleep(0.02)


async def test_a_task_in_flight_shows_everywhere(world: GrpcWorld) -> None:
    """The status and the listing say the same while an apply is under way (defect 9)."""
    node = await world.add("n1")
    await world.agents.apply(node, wish(ContainerSpec("slow")), TIMEOUT)
    status = await world.agents.status(node, "w1", TIMEOUT)
    listed = await world.agents.list(node, TIMEOUT)
    assert isinstance(status, AgentReport)
    assert not isinstance(listed, Refused | Unreachable)
    in_flight = (TaskStatus.PENDING, TaskStatus.RUNNING)
    assert status.task_status in in_flight
    assert [each.task_status in in_flight for each in listed] == [True]
    await until(world, node, lambda report: report.state is AgentState.RUNNING)


async def test_a_failed_apply_is_told_as_failed_without_its_secrets(world: GrpcWorld) -> None:
    """It is not masked by what the runtime knows (defect 1): state, cause and history say why,
    and none of them what is secret (A04)."""
    node = await world.add("n1")
    image = f"127.0.0.1:1/missing-{SECRET.lower()}:1"
    body = ContainerSpec(image, env={"DB_PASSWORD": SECRET.lower()})
    assert isinstance(await world.agents.apply(node, wish(body), TIMEOUT), Accepted)
    report = await until(world, node, lambda report: report.state is AgentState.FAILED)
    error = await world.agents.last_error(node, "w1", TIMEOUT)
    assert "[CREATE_FAILED]" in error
    assert "cannot be pulled" in report.message
    assert report.failure_code == "IMAGE_PULL_FAILED"
    assert SECRET.lower() not in (error + repr(report)).lower()


async def test_a_wish_that_makes_no_sense_is_refused(world: GrpcWorld) -> None:
    """The agent turns it away at once, with a code and a text."""
    node = await world.add("n1")
    refused = await world.agents.apply(node, wish(ContainerSpec("nginx"), "no/id"), TIMEOUT)
    assert isinstance(refused, Refused)
    assert refused.code == "invalid_spec"
    assert "invalid workload id" in refused.message

"""The Agents contract on the real agent over gRPC.

Where the suite asks for agents in the field, whose defects ours must not have, the rule that holds
for ours stands here in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.agents import Accepted, ApplyRequest, NotFound, Refused, Unreachable
from persys_core.testing.agents_suite import AgentsContract, AgentsWorld
from tests.contract.real_agents import RealAgentsWorld, real_agents_world

_TIMEOUT = timedelta(seconds=5)
_SECRET = "s3cr3t-XYZ"


def _apply(image: str, env: dict[str, str] | None = None) -> ApplyRequest:
    body = ContainerSpec(image, env=env or {})
    spec = WorkloadSpec(WorkloadType.CONTAINER, Resources.of(cpu_millicores=100), body)
    return ApplyRequest("w1", "r1", DesiredState.RUNNING, spec, 1)


class TestRealAgents(AgentsContract):
    def world(self) -> AbstractAsyncContextManager[AgentsWorld]:
        return real_agents_world()

    def test_a_task_in_flight_shows_in_the_status_only(self) -> None:
        """Ours shows it in a listing as well, so that nobody re-applies meanwhile (A9)."""

        async def body(world: RealAgentsWorld) -> None:
            node = await world.add("n1")
            await world.agents.apply(node, _apply("slow"), _TIMEOUT)
            status = await world.agents.status(node, "w1", _TIMEOUT)
            listed = await world.agents.list(node, _TIMEOUT)
            assert isinstance(status, AgentReport)
            assert not isinstance(listed, Refused | Unreachable)
            for report in (status, *listed):
                assert report.state is AgentState.PENDING
                assert report.task_status in (TaskStatus.PENDING, TaskStatus.RUNNING)

        _run(body)

    def test_the_cause_of_a_failed_apply_can_be_had(self) -> None:
        """Ours masks nothing: the status is failed and has the cause (A1)."""

        async def body(world: RealAgentsWorld) -> None:
            report, error = await _failed(world, _apply("missing"))
            assert "image not found" in report.metadata["last_error"]
            assert report.failure_code == "INVALID_IMAGE"
            assert "[CREATE_FAILED]" in error

        _run(body)

    def test_secrets_of_the_spec_are_in_no_text(self) -> None:
        """The agent itself lets none out."""

        async def body(world: RealAgentsWorld) -> None:
            wish = _apply(f"registry/missing-{_SECRET}", {"DB_PASSWORD": _SECRET})
            report, error = await _failed(world, wish)
            assert _SECRET.lower() not in (error + repr(report)).lower()
            machine = world.machines["n1"]
            assert machine.node is not None
            tasks = machine.node.works.queue.history.find()
            assert _SECRET not in "".join(task.error for task in tasks)

        _run(body)

    def test_a_refusal_has_a_code_and_a_text(self) -> None:
        """A node that lets nothing new in says so, and takes what it has again (A21)."""

        async def body(world: RealAgentsWorld) -> None:
            node = await world.add("n1")
            await world.agents.apply(node, _apply("nginx"), _TIMEOUT)
            assembly = world.machines["n1"].node
            assert assembly is not None
            while assembly.works.queue.depth:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assembly.gate.is_draining = True
            again = await world.agents.apply(node, _apply("nginx"), _TIMEOUT)
            assert isinstance(again, Accepted)
            new = ApplyRequest("w2", "r1", DesiredState.RUNNING, _apply("nginx").spec, 1)
            refused = await world.agents.apply(node, new, _TIMEOUT)
            assert isinstance(refused, Refused)
            assert refused.code == "admission_refused"
            assert await world.agents.status(node, "w2", _TIMEOUT) == NotFound()

        _run(body)

    def test_an_existing_agent_ignores_epochs(self) -> None:
        """Ours is none: an epoch that was obeyed is kept over a restart."""

        async def body(world: RealAgentsWorld) -> None:
            node = await world.add("n1")
            newer = ApplyRequest("w1", "r1", DesiredState.RUNNING, _apply("nginx").spec, 7)
            assert isinstance(await world.agents.apply(node, newer, _TIMEOUT), Accepted)
            moved = await world.move("n1")
            older = await world.agents.apply(moved, _apply("nginx"), _TIMEOUT)
            assert isinstance(older, Refused)
            assert older.code == "stale_epoch"

        _run(body)


async def _failed(world: RealAgentsWorld, wish: ApplyRequest) -> tuple[AgentReport, str]:
    node = await world.add("n1")
    await world.agents.apply(node, wish, _TIMEOUT)
    async with asyncio.timeout(10):
        while True:
            report = await world.agents.status(node, "w1", _TIMEOUT)
            if isinstance(report, AgentReport) and report.task_status is TaskStatus.NONE:
                break
            await asyncio.sleep(0.01)
    assert report.state is AgentState.FAILED
    return report, await world.agents.last_error(node, "w1", _TIMEOUT)


def _run(body: Callable[[RealAgentsWorld], Awaitable[None]]) -> None:
    async def run() -> None:
        async with real_agents_world() as world:
            await body(world)

    asyncio.run(run())

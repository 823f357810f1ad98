"""The contract of the Agents port, as tests that run on any implementation.

Subclass ``AgentsContract`` and give it a ``world``: agents that really answer, and a way to break
them. What is asked here is what the reconciler relies on; how an agent works inside is not.

Size: a test for each promise of the port.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Protocol

from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ContainerSpec, SpecBody, VmSpec, WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.agents import (
    Accepted,
    Agents,
    ApplyRequest,
    DeleteRequest,
    NotFound,
    Refused,
    Unreachable,
)
from persys_core.ports.clock import Clock
from persys_core.sim.agent import MachineState
from persys_core.sim.agent_journal import Happening, Journal

__all__ = ["AgentsContract", "AgentsWorld"]

_TIMEOUT = timedelta(seconds=5)
_SHORT = timedelta(seconds=0.5)
_PATIENCE = timedelta(seconds=20)
_POLL = timedelta(seconds=0.02)
_SECRET = "s3cr3t-XYZ"


class AgentsWorld(Protocol):
    """An implementation with agents to talk to. Agents should create and start within a second."""

    @property
    def agents(self) -> Agents:
        """The port under test."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that the agents live by."""
        ...

    async def add(self, node_id: NodeId, *, ours: bool = True) -> Node:
        """Start an agent; with ``ours`` false one that behaves as the agents in the field."""
        ...

    async def move(self, node_id: NodeId) -> Node:
        """Let the same agent listen somewhere else, and nobody at the old endpoint."""
        ...

    async def bring(self, node_id: NodeId, state: MachineState) -> None:
        """Let a node answer (UP), take calls in and answer none (PAUSED), or be away (OFF).

        An agent that comes UP again listens at the endpoint that it had.
        """
        ...

    def journal(self, node_id: NodeId) -> Journal:
        """What happened on the node."""
        ...


Scenario = Callable[["AgentsContract", AgentsWorld], Coroutine[Any, Any, None]]


def _scenario(test: Scenario) -> Callable[[AgentsContract], None]:
    """Make a test of a coroutine that wants a world."""

    @functools.wraps(test)
    def run(self: AgentsContract) -> None:
        async def body() -> None:
            async with self.world() as world:
                await test(self, world)

        self.run(body)

    del run.__wrapped__  # pytest must see no parameter but self
    return run


class AgentsContract:
    """Subclass it as ``Test…`` and implement ``world`` and, for virtual time, ``run``."""

    def world(self) -> AbstractAsyncContextManager[AgentsWorld]:
        """A fresh implementation and its agents; closed at the end of each test."""
        raise AssertionError("a subclass gives the world in which the contract is tested")

    def kinds(self) -> frozenset[WorkloadType]:
        """The types of workload that the agents of the world can run."""
        return frozenset({WorkloadType.CONTAINER, WorkloadType.COMPOSE, WorkloadType.VM})

    def run(self, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a test's coroutine; on real time unless a subclass says otherwise."""
        asyncio.run(body())

    @_scenario
    async def test_an_accepted_apply_runs_in_the_end(self, world: AgentsWorld) -> None:
        """Accepted means taken, not running; the status tells when it runs."""
        node = await world.add("n1")
        outcome = await world.agents.apply(node, _apply("w1"), _TIMEOUT)
        assert isinstance(outcome, Accepted)
        assert not outcome.skipped
        report = await _settles(world, node, "w1", AgentState.RUNNING)
        assert (report.workload_id, report.revision_id) == ("w1", "r1")
        assert (report.type, report.desired_state) == (WorkloadType.CONTAINER, DesiredState.RUNNING)
        assert report.reported_at is not None

    @_scenario
    async def test_every_kind_of_workload_reaches_its_runtime(self, world: AgentsWorld) -> None:
        """Containers, Compose applications and machines arrive as what they are."""
        node = await world.add("n1")
        bodies: dict[WorkloadType, SpecBody] = {
            WorkloadType.CONTAINER: ContainerSpec("nginx"),
            WorkloadType.COMPOSE: ComposeSpec("services:\n  a:\n    image: nginx\n"),
            WorkloadType.VM: VmSpec(vcpus=1, memory_mb=512),
        }
        for kind in self.kinds():
            await world.agents.apply(node, _apply(kind, body=bodies[kind], kind=kind), _TIMEOUT)
        for kind in self.kinds():
            report = await _settles(world, node, kind, AgentState.RUNNING)
            assert report.type is kind

    @_scenario
    async def test_the_same_revision_can_be_stopped_and_started(self, world: AgentsWorld) -> None:
        """A change of the desired state alone stops and starts what is there."""
        node = await world.add("n1")
        await world.agents.apply(node, _apply("w1"), _TIMEOUT)
        await _settles(world, node, "w1", AgentState.RUNNING)
        await world.agents.apply(node, _apply("w1", desired=DesiredState.STOPPED), _TIMEOUT)
        stopped = await _settles(world, node, "w1", AgentState.STOPPED)
        assert stopped.desired_state is DesiredState.STOPPED
        await world.agents.apply(node, _apply("w1"), _TIMEOUT)
        await _settles(world, node, "w1", AgentState.RUNNING)
        assert len(list(world.journal("n1").of("w1", Happening.CREATED))) == 1

    @_scenario
    async def test_a_task_in_flight_shows_in_the_status_only(self, world: AgentsWorld) -> None:
        """While an apply is under way the status says so and a listing does not."""
        node = await world.add("n1")
        await world.agents.apply(node, _apply("w1", image="slow"), _TIMEOUT)
        status = await world.agents.status(node, "w1", _TIMEOUT)
        assert isinstance(status, AgentReport)
        assert status.task_status in (TaskStatus.PENDING, TaskStatus.RUNNING)
        listed = await world.agents.list(node, _TIMEOUT)
        assert not isinstance(listed, Refused | Unreachable)
        assert [report.task_status for report in listed] in ([], [TaskStatus.NONE])

    @_scenario
    async def test_a_deleted_workload_is_not_found(self, world: AgentsWorld) -> None:
        """After an accepted delete the status becomes NotFound and the listing forgets it."""
        node = await world.add("n1")
        await world.agents.apply(node, _apply("w1"), _TIMEOUT)
        await _settles(world, node, "w1", AgentState.RUNNING)
        assert isinstance(
            await world.agents.delete(node, DeleteRequest("w1", 1), _TIMEOUT), Accepted
        )
        await _vanishes(world, node, "w1")
        assert await world.agents.list(node, _TIMEOUT) == ()

    @_scenario
    async def test_deleting_what_is_not_there_ends_as_not_found(self, world: AgentsWorld) -> None:
        """Whether the agent says so at once or later, the workload is gone and no failure."""
        node = await world.add("n1", ours=False)
        outcome = await world.agents.delete(node, DeleteRequest("ghost", 1), _TIMEOUT)
        assert isinstance(outcome, Accepted | NotFound)
        await _vanishes(world, node, "ghost")

    @_scenario
    async def test_a_workload_that_was_never_applied_is_not_found(self, world: AgentsWorld) -> None:
        """NotFound is an answer of its own, neither a refusal nor silence."""
        node = await world.add("n1")
        assert await world.agents.status(node, "ghost", _TIMEOUT) == NotFound()

    @_scenario
    async def test_a_listing_has_everything(self, world: AgentsWorld) -> None:
        """All workloads of the node are listed, with their revisions."""
        node = await world.add("n1")
        for name in ("w3", "w1", "w2"):
            await world.agents.apply(node, _apply(name), _TIMEOUT)
        for name in ("w1", "w2", "w3"):
            await _settles(world, node, name, AgentState.RUNNING)
        listed = await world.agents.list(node, _TIMEOUT)
        assert not isinstance(listed, Refused | Unreachable)
        assert sorted((each.workload_id, each.revision_id) for each in listed) == [
            ("w1", "r1"),
            ("w2", "r1"),
            ("w3", "r1"),
        ]

    @_scenario
    async def test_the_cause_of_a_failed_apply_can_be_had(self, world: AgentsWorld) -> None:
        """An existing agent masks the failure; its cause is in the metadata and in the history."""
        node = await world.add("n1", ours=False)
        await world.agents.apply(node, _apply("w1", image="missing"), _TIMEOUT)
        report = await _settles(world, node, "w1", AgentState.UNKNOWN)
        assert report.message == "container not found"
        assert "image not found" in report.metadata["last_error"]
        assert "[CREATE_FAILED]" in await world.agents.last_error(node, "w1", _TIMEOUT)

    @_scenario
    async def test_a_workload_without_failures_has_no_last_error(self, world: AgentsWorld) -> None:
        """No failure, an unknown workload and a dead node all give an empty text."""
        node = await world.add("n1")
        assert await world.agents.last_error(node, "w1", _TIMEOUT) == ""
        await world.bring("n1", MachineState.OFF)
        assert await world.agents.last_error(node, "w1", _SHORT) == ""

    @_scenario
    async def test_a_refusal_has_a_code_and_a_text(self, world: AgentsWorld) -> None:
        """An apply that the agent turns away is Refused with the agent's own code."""
        node = await world.add("n1", ours=False)
        outcome = await world.agents.apply(node, _apply("w1", image="refuse"), _TIMEOUT)
        assert isinstance(outcome, Refused)
        assert outcome.code == "resource_quota_exceeded"
        assert "Insufficient system resources" in outcome.message

    @_scenario
    async def test_secrets_of_the_spec_are_in_no_text(self, world: AgentsWorld) -> None:
        """An error that echoes a secret value comes back masked (field report A04)."""
        node = await world.add("n1", ours=False)
        image = f"registry/missing-{_SECRET}"
        body = ContainerSpec(image, env={"DB_PASSWORD": _SECRET})
        await world.agents.apply(node, _apply("w1", body=body), _TIMEOUT)
        report = await _settles(world, node, "w1", AgentState.UNKNOWN)
        error = await world.agents.last_error(node, "w1", _TIMEOUT)
        assert "CREATE_FAILED" in error
        assert _SECRET.lower() not in (error + repr(report)).lower()

    @_scenario
    async def test_a_dead_node_is_unreachable_before_the_deadline(self, world: AgentsWorld) -> None:
        """A refused connection is known at once and is told apart from silence."""
        node = await world.add("n1")
        await world.bring("n1", MachineState.OFF)
        began = world.clock.monotonic()
        outcome = await world.agents.status(node, "w1", _TIMEOUT)
        assert isinstance(outcome, Unreachable)
        assert not outcome.deadline_exceeded
        assert world.clock.monotonic() - began < _TIMEOUT.total_seconds()

    @_scenario
    async def test_a_revived_node_answers_again(self, world: AgentsWorld) -> None:
        """A connection that failed once is tried anew."""
        node = await world.add("n1")
        await world.bring("n1", MachineState.OFF)
        assert isinstance(await world.agents.list(node, _SHORT), Unreachable)
        await world.bring("n1", MachineState.UP)
        await _eventually(world, lambda: _answers(world, node))

    @_scenario
    async def test_silence_ends_at_the_deadline(self, world: AgentsWorld) -> None:
        """A node that takes the call and never answers costs its caller the timeout, no more."""
        node = await world.add("n1")
        await world.bring("n1", MachineState.PAUSED)
        began = world.clock.monotonic()
        outcome = await world.agents.list(node, _SHORT)
        assert isinstance(outcome, Unreachable)
        assert outcome.deadline_exceeded
        assert world.clock.monotonic() - began < _SHORT.total_seconds() + 0.5
        await world.bring("n1", MachineState.UP)
        await _eventually(world, lambda: _answers(world, node))

    @_scenario
    async def test_a_silent_node_does_not_hold_up_the_others(self, world: AgentsWorld) -> None:
        """One of several nodes hangs; many calls to it do not delay calls to the rest (G02)."""
        hung = await world.add("hung")
        well = [await world.add(f"n{number}") for number in range(5)]
        await world.bring("hung", MachineState.PAUSED)
        waiting = [
            asyncio.create_task(world.agents.status(hung, f"w{number}", _TIMEOUT))
            for number in range(20)
        ]
        for node in well:
            assert await world.agents.list(node, _TIMEOUT) == ()
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    @_scenario
    async def test_a_cancelled_call_leaves_the_node_usable(self, world: AgentsWorld) -> None:
        """Whoever gives up waiting blocks nobody after it."""
        node = await world.add("n1")
        await world.bring("n1", MachineState.PAUSED)
        calls = [asyncio.create_task(world.agents.list(node, _TIMEOUT)) for _ in range(20)]
        await world.clock.sleep(_POLL)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert all(call.cancelled() for call in calls)
        await world.bring("n1", MachineState.UP)
        await _eventually(world, lambda: _answers(world, node))

    @_scenario
    async def test_calls_follow_a_node_to_its_new_endpoint(self, world: AgentsWorld) -> None:
        """When the node's record has another endpoint, that one is called."""
        node = await world.add("n1")
        assert await world.agents.list(node, _TIMEOUT) == ()
        moved = await world.move("n1")
        assert moved.endpoint != node.endpoint
        assert await world.agents.list(moved, _TIMEOUT) == ()
        assert isinstance(await world.agents.list(node, _SHORT), Unreachable)
        assert await world.agents.list(moved, _TIMEOUT) == ()

    @_scenario
    async def test_our_agent_refuses_an_older_epoch(self, world: AgentsWorld) -> None:
        """A call of a leader that was replaced is refused by our agent."""
        node = await world.add("n1", ours=True)
        assert isinstance(await world.agents.apply(node, _apply("w1", epoch=7), _TIMEOUT), Accepted)
        late = await world.agents.apply(node, _apply("w2", epoch=6), _TIMEOUT)
        assert isinstance(late, Refused)
        assert late.code == "stale_epoch"
        delete = await world.agents.delete(node, DeleteRequest("w1", 6), _TIMEOUT)
        assert isinstance(delete, Refused)
        assert delete.code == "stale_epoch"

    @_scenario
    async def test_an_existing_agent_ignores_epochs(self, world: AgentsWorld) -> None:
        """Agents in the field know no epochs and take every call."""
        node = await world.add("n1", ours=False)
        for epoch in (7, 6):
            name = f"w{epoch}"
            outcome = await world.agents.apply(node, _apply(name, epoch=epoch), _TIMEOUT)
            assert isinstance(outcome, Accepted)

    @_scenario
    async def test_a_forgotten_node_may_come_back(self, world: AgentsWorld) -> None:
        """``forget`` closes what is kept of a node, known or not; a later call starts anew."""
        node = await world.add("n1")
        assert await world.agents.list(node, _TIMEOUT) == ()
        await world.agents.forget("n1")
        await world.agents.forget("never-seen")
        assert await world.agents.list(node, _TIMEOUT) == ()

    @_scenario
    async def test_closing_twice_does_no_harm(self, world: AgentsWorld) -> None:
        """``aclose`` may be called again."""
        node = await world.add("n1")
        await world.agents.list(node, _TIMEOUT)
        await world.agents.aclose()
        await world.agents.aclose()


def _apply(
    workload_id: str,
    *,
    image: str = "nginx",
    body: SpecBody | None = None,
    kind: WorkloadType = WorkloadType.CONTAINER,
    desired: DesiredState = DesiredState.RUNNING,
    epoch: int = 1,
) -> ApplyRequest:
    resources = Resources.of(cpu_millicores=100, memory_mb=64)
    spec = WorkloadSpec(kind, resources, body or ContainerSpec(image))
    return ApplyRequest(workload_id, "r1", desired, spec, epoch)


async def _eventually(world: AgentsWorld, holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = world.clock.monotonic() + _PATIENCE.total_seconds()
    while not await holds():
        assert world.clock.monotonic() < deadline, f"did not hold within {_PATIENCE}"
        await world.clock.sleep(_POLL)


async def _settles(world: AgentsWorld, node: Node, name: str, state: AgentState) -> AgentReport:
    """Wait until the workload has no task in flight and is in ``state``."""
    seen: list[AgentReport] = []

    async def is_so() -> bool:
        report = await world.agents.status(node, name, _TIMEOUT)
        if isinstance(report, AgentReport):
            seen.append(report)
            return report.state is state and report.task_status is TaskStatus.NONE
        return False

    await _eventually(world, is_so)
    return seen[-1]


async def _vanishes(world: AgentsWorld, node: Node, name: str) -> None:
    async def is_gone() -> bool:
        return await world.agents.status(node, name, _TIMEOUT) == NotFound()

    await _eventually(world, is_gone)


async def _answers(world: AgentsWorld, node: Node) -> bool:
    return not isinstance(await world.agents.list(node, _SHORT), Refused | Unreachable)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
from attrs import define

from persys_agent.clock import SystemClock
from persys_agent.node.serving import Listening, serve
from persys_agent.testing import InlineState, MemoryHost
from persys_core.model.workload import FailureKind
from persys_core.retry.failure import classify_failure
from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.aio import agent_service_stub
from tests.unit.agent.bench import Bench, Node, apply_message

if TYPE_CHECKING:
    from persys_proto.agent.v1.agent_pb2_grpc import AgentServiceAsyncStub

NOW = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


@define(eq=False)
class Called:
    """A node that is served, and a client of it."""

    bench: Bench
    node: Node
    stub: AgentServiceAsyncStub

    async def applied(self, message: wire.ApplyWorkloadRequest) -> wire.WorkloadStatus:
        answer = await self.stub.ApplyWorkload(message)
        assert answer.applied, answer.message
        await self.node.settled()
        return await self.status(message.id)

    async def status(self, workload_id: str = "w1") -> wire.WorkloadStatus:
        request = wire.GetWorkloadStatusRequest(id=workload_id)
        return (await self.stub.GetWorkloadStatus(request)).status


@asynccontextmanager
async def called(folder: Path, host: MemoryHost | None = None) -> AsyncIterator[Called]:
    bench = Bench(SystemClock(), folder)
    bench.host = host or bench.host
    async with bench.node() as node:
        async with (
            serve(node.assembly, bench.backends(), Listening()) as served,
            grpc.aio.insecure_channel(served.endpoint) as channel,
        ):
            yield Called(bench, node, agent_service_stub(channel))
        assert served.loops.errors == 0
    assert isinstance(node.file, InlineState)


async def code_of(call: object) -> tuple[grpc.StatusCode, str]:
    try:
        await call  # type: ignore[misc]
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("the call succeeded")


async def test_an_apply_is_answered_at_once(tmp_path: Path) -> None:
    """Applied means accepted; the task's id is in the status, in the words of the field."""
    async with called(tmp_path) as it:
        answer = await it.stub.ApplyWorkload(apply_message(image="slow"))
        assert (answer.applied, answer.skipped) == (True, False)
        assert answer.message == "workload apply submitted for processing"
        assert answer.status.actual_state == wire.ACTUAL_STATE_PENDING
        assert answer.status.metadata["task_id"].startswith("apply-w1-")
        assert answer.status.metadata["task_status"] == "pending"
        listed = await it.stub.ListWorkloads(wire.ListWorkloadsRequest())
        assert listed.workloads[0].metadata["task_status"] in ("pending", "running")


async def test_a_status_has_what_the_field_knows(tmp_path: Path) -> None:
    """Type, revision, wish, state, times and metadata."""
    async with called(tmp_path) as it:
        status = await it.applied(apply_message())
        assert status.type == wire.WORKLOAD_TYPE_CONTAINER
        assert status.revision_id == "r1"
        assert status.desired_state == wire.DESIRED_STATE_RUNNING
        assert status.actual_state == wire.ACTUAL_STATE_RUNNING
        assert 0 < status.created_at <= status.updated_at
        assert "last_transition" in status.metadata


async def test_a_deleted_workload_has_no_status(tmp_path: Path) -> None:
    """The error is the one that schedulers read as deleted, also for one never known (A10)."""
    async with called(tmp_path) as it:
        await it.applied(apply_message())
        for name in ("w1", "ghost"):
            answer = await it.stub.DeleteWorkload(wire.DeleteWorkloadRequest(id=name))
            assert answer.success
            assert answer.message == "workload deletion submitted for processing"
            await it.node.settled()
            assert await code_of(it.status(name)) == (
                grpc.StatusCode.UNKNOWN,
                "status not found: status not found",
            )


@pytest.mark.parametrize("workload_id", ["", "..", "../x", "a/b", ".hidden", "x" * 254, "a b"])
async def test_an_id_that_could_be_a_path_is_refused(tmp_path: Path, workload_id: str) -> None:
    """Neither an apply nor a delete of it is taken in (A31)."""
    async with called(tmp_path) as it:
        applied = await it.stub.ApplyWorkload(apply_message(workload_id))
        deleted = await it.stub.DeleteWorkload(wire.DeleteWorkloadRequest(id=workload_id))
        assert (applied.applied, deleted.success) == (False, False)
        assert "invalid workload id" in applied.message + deleted.message
        assert not it.node.assembly.works.queue.history.find()
        code, _ = await code_of(it.status(workload_id))
        assert code is grpc.StatusCode.UNKNOWN


async def test_a_message_without_a_spec_is_refused(tmp_path: Path) -> None:
    """In the words of the field."""
    async with called(tmp_path) as it:
        answer = await it.stub.ApplyWorkload(wire.ApplyWorkloadRequest(id="w1"))
        assert not answer.applied
        assert answer.message == (
            "invalid request: spec must contain container, compose, or vm specification"
        )


@pytest.mark.parametrize(
    ("memory_mb", "metadata", "told"),
    [
        (5, {}, "a memory limit of 5 MB is less than a container can have: ask for 6 or more"),
        (64, {"persys.agent.pull_policy": "maybe"}, '"maybe" is not one of always, missing, never'),
        (64, {"persys.agent.health.retries": "many"}, '"many" is not between 0.001 and 1000000'),
    ],
)
async def test_what_can_never_run_is_refused_at_once(
    tmp_path: Path, memory_mb: int, metadata: dict[str, str], told: str
) -> None:
    """It is not taken in, and the code says that no other try can help."""
    async with called(tmp_path) as it:
        message = apply_message()
        message.resources.memory_mb = memory_mb
        message.metadata.update(metadata)
        answer = await it.stub.ApplyWorkload(message)
        assert not answer.applied
        assert answer.message.startswith("[INVALID_SPECIFICATION] ")
        assert told in answer.message
        assert classify_failure("REJECTED", answer.message, NOW).kind is FailureKind.PERMANENT
        assert not it.node.assembly.works.queue.history.find()
        message.resources.memory_mb = 6
        message.metadata.clear()
        assert (await it.stub.ApplyWorkload(message)).applied


async def test_an_older_epoch_is_refused(tmp_path: Path) -> None:
    """A call without one is obeyed; one below the newest is not, and changes nothing."""
    async with called(tmp_path) as it:
        newest = (("persys-epoch", "7"),)
        older = (("persys-epoch", "6"),)
        assert (await it.stub.ApplyWorkload(apply_message("a"), metadata=newest)).applied
        refused = await it.stub.ApplyWorkload(apply_message("b"), metadata=older)
        assert not refused.applied
        assert refused.message.startswith("[STALE_EPOCH] the call carries epoch 6")
        delete = wire.DeleteWorkloadRequest(id="a")
        assert not (await it.stub.DeleteWorkload(delete, metadata=older)).success
        assert (await it.stub.ApplyWorkload(apply_message("c"))).applied


async def test_the_history_can_be_filtered(tmp_path: Path) -> None:
    """By workload, type and status; newest first or oldest; unset times are 0 (A11)."""
    async with called(tmp_path) as it:
        await it.applied(apply_message("a"))
        await it.applied(apply_message("b", image="missing"))
        await it.stub.ApplyWorkload(apply_message("c", image="slow"))
        await it.stub.DeleteWorkload(wire.DeleteWorkloadRequest(id="c"))

        async def actions(**filters: object) -> list[wire.AgentAction]:
            request = wire.ListActionsRequest(**filters)  # type: ignore[arg-type]
            return list((await it.stub.ListActions(request)).actions)

        newest = await actions(newest_first=True, limit=2)
        assert [(each.workload_id, each.status) for each in newest] == [
            ("c", "pending"),
            ("c", "running"),
        ]
        assert (newest[0].started_at, newest[0].ended_at, newest[1].ended_at) == (0, 0, 0)
        (failed,) = await actions(status=" failed ")
        assert failed.error.startswith("failed to apply workload b: [CREATE_FAILED]")
        assert [each.workload_id for each in await actions(action_type="delete_workload")] == ["c"]
        assert [each.status for each in await actions(workload_id="a")] == ["completed"]


async def test_a_listing_can_be_of_one_type(tmp_path: Path) -> None:
    """And it comes in the order of ids."""
    async with called(tmp_path) as it:
        for name in ("b", "a"):
            await it.applied(apply_message(name))
        containers = wire.ListWorkloadsRequest(type=wire.WORKLOAD_TYPE_CONTAINER)
        machines = wire.ListWorkloadsRequest(type=wire.WORKLOAD_TYPE_VM)
        found = (await it.stub.ListWorkloads(containers)).workloads
        assert [each.id for each in found] == ["a", "b"]
        assert not (await it.stub.ListWorkloads(machines)).workloads


async def test_health_tells_the_truth(tmp_path: Path) -> None:
    """A runtime that worked and does not now makes the node unhealthy, with the reason (A12)."""
    async with called(tmp_path) as it:
        well = await it.stub.HealthCheck(wire.HealthCheckRequest())
        assert well.healthy
        assert dict(well.runtime_status) == {"container": "healthy", "vm": "healthy"}
        assert 0 < well.memory_utilization <= 100
        it.bench.host.is_up = False
        await it.node.assembly.detector.detect()
        ill = await it.stub.HealthCheck(wire.HealthCheckRequest())
        assert not ill.healthy
        assert ill.runtime_status["container"] == "unhealthy: the memory runtime is down"
        reason = it.node.assembly.health.ailment()
        assert reason.startswith("no answer from: container (the memory runtime is down)")


async def test_a_silent_runtime_is_no_denial(tmp_path: Path) -> None:
    """Without a record and without the runtime's word the call fails as unavailable (A2)."""
    async with called(tmp_path) as it:
        it.bench.host.is_up = False
        code, text = await code_of(it.status("unseen"))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "not found" not in text


async def test_a_disk_that_fails_takes_nothing_in(tmp_path: Path) -> None:
    """Nothing is accepted that could not be remembered; what is there is still told."""
    async with called(tmp_path) as it:
        await it.applied(apply_message())
        it.node.file.fails = True
        applied = await it.stub.ApplyWorkload(apply_message("w2"))
        deleted = await it.stub.DeleteWorkload(wire.DeleteWorkloadRequest(id="w1"))
        assert (applied.applied, deleted.success) == (False, False)
        assert "[RUNTIME_UNAVAILABLE]" in applied.message
        it.bench.host.end("w1", 1)
        assert (await it.status()).actual_state == wire.ACTUAL_STATE_FAILED
        it.node.file.fails = False
        assert (await it.stub.ApplyWorkload(apply_message("w2"))).applied


async def test_logs_are_streamed(tmp_path: Path) -> None:
    """The last lines, then those to come."""
    async with called(tmp_path) as it:
        await it.applied(apply_message())
        request = wire.StreamLogsRequest(id="w1", tail=2, follow=True)
        lines = [line.text async for line in it.stub.StreamLogs(request)]
        assert lines == ["line 2", "line 3", "followed"]


async def test_logs_of_nothing_are_an_error(tmp_path: Path) -> None:
    """A workload that this node does not have, and an id that could be a path."""
    async with called(tmp_path) as it:
        for name in ("ghost", "../x"):
            call = it.stub.StreamLogs(wire.StreamLogsRequest(id=name))
            assert (await code_of(call.read()))[0] is grpc.StatusCode.NOT_FOUND


async def test_a_command_gets_its_input_and_gives_its_end(tmp_path: Path) -> None:
    """Output by stream, and the exit code last."""
    async with called(tmp_path) as it:
        await it.applied(apply_message())
        start = wire.ExecStart(id="w1", command=["echo", "abc"])
        requests = (
            wire.ExecRequest(start=start),
            wire.ExecRequest(input=b"typed"),
            wire.ExecRequest(end_of_input=True),
        )
        answers = [each async for each in it.stub.Exec(iter(requests))]
        assert [each.stdout for each in answers[:-1]] == [b"echo abc", b"typed"]
        assert answers[-1].exit_code == 3


async def test_a_caller_that_leaves_ends_its_command(tmp_path: Path) -> None:
    """The runtime's iterator is closed although its input never ended."""
    async with called(tmp_path) as it:
        await it.applied(apply_message())
        call = it.stub.Exec()
        await call.write(wire.ExecRequest(start=wire.ExecStart(id="w1", command=["cat"])))
        first = await call.read()
        assert isinstance(first, wire.ExecResponse)
        assert first.stdout == b"cat"
        call.cancel()
        journal = it.bench.host.faults.journal
        async with asyncio.timeout(5):
            while ("execute_ended", "w1") not in journal:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_command_needs_a_start(tmp_path: Path) -> None:
    """Input before the start is refused."""
    async with called(tmp_path) as it:
        call = it.stub.Exec(iter((wire.ExecRequest(input=b"x"),)))
        assert (await code_of(call.read()))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_burst_of_applies_is_taken_in_quickly(tmp_path: Path) -> None:
    """However slow the work is, no call waits for it (A15)."""
    async with called(tmp_path) as it:
        calls = [it.stub.ApplyWorkload(apply_message(f"w{n}", image="slow")) for n in range(60)]
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*calls)
        assert all(answer.applied for answer in answers)
        assert it.node.assembly.works.queue.depth >= 50


async def test_a_draining_node_takes_its_own_orphans(tmp_path: Path) -> None:
    """What runs here is nothing new, although its record was lost; everything else is."""
    async with called(tmp_path) as it:
        await it.applied(apply_message())
        host = it.bench.host
    (tmp_path / "state.db").unlink()
    async with called(tmp_path, host) as it:
        it.node.assembly.gate.is_draining = True
        listed = (await it.stub.ListWorkloads(wire.ListWorkloadsRequest())).workloads
        assert [each.metadata["orphan"] for each in listed] == ["true"]
        status = await it.applied(apply_message())
        assert status.actual_state == wire.ACTUAL_STATE_RUNNING
        assert "orphan" not in status.metadata
        assert (host.made["w1"], host.started["w1"]) == (1, 1)
        assert not (await it.stub.ApplyWorkload(apply_message("w2"))).applied

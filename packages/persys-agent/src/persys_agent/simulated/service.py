"""The agents' gRPC service in front of a model.

Decided here: how a model's answer looks on the wire. A paused node takes requests in, answers
none, and carries them out when it goes on, even if their callers have left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import grpc
import grpc.aio

from persys_agent.simulated.output import SimulatedOutput
from persys_agent.specs import BadSpecError, apply_request, workload_type
from persys_agent.wire.epochs import epoch_of
from persys_agent.wire.messages import reported
from persys_core.model.observation import AgentReport
from persys_core.ports.agents import DeleteRequest
from persys_core.ports.clock import Clock
from persys_core.sim.agent import AgentModel, Reply
from persys_core.sim.agent_tasks import AgentTask
from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.agent.v1 import agent_pb2_grpc

__all__ = ["SimulatedAgentService"]

_STATUS_NOT_FOUND = "status not found: status not found"
_NEVER = -62135596800
_IDLE_WAIT = timedelta(seconds=1)
_LEAST_WAIT = timedelta(milliseconds=1)

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]


class SimulatedAgentService(agent_pb2_grpc.AgentServiceServicer):
    """One node's service. ``gate`` is cleared while the node is paused. ``is_interactive``: it has
    StreamLogs and Exec, which older agents do not know."""

    def __init__(
        self,
        model: AgentModel,
        clock: Clock,
        gate: asyncio.Event,
        *,
        is_interactive: bool = True,
    ) -> None:
        self._model = model
        self._clock = clock
        self._gate = gate
        self._is_interactive = is_interactive
        self._late: set[asyncio.Task[Any]] = set()

    async def ApplyWorkload(
        self, request: wire.ApplyWorkloadRequest, context: Context
    ) -> wire.ApplyWorkloadResponse:
        """Take an apply in."""
        epoch = epoch_of(context)

        async def work() -> wire.ApplyWorkloadResponse:
            try:
                wish = apply_request(request, epoch)
            except BadSpecError as error:
                return wire.ApplyWorkloadResponse(message=str(error))
            reply = await self._settled(self._model.apply(wish, self._clock.now()))
            return wire.ApplyWorkloadResponse(
                applied=reply.accepted,
                skipped=reply.skipped,
                message=reply.message,
                status=_status(reply.report) if reply.report else None,
            )

        return await self._behind_the_gate(work)

    async def DeleteWorkload(
        self, request: wire.DeleteWorkloadRequest, context: Context
    ) -> wire.DeleteWorkloadResponse:
        """Take a delete in."""
        wish = DeleteRequest(request.id, epoch_of(context), request.delete_volumes)

        async def work() -> wire.DeleteWorkloadResponse:
            reply = await self._settled(self._model.delete(wish, self._clock.now()))
            return wire.DeleteWorkloadResponse(success=reply.accepted, message=reply.message)

        return await self._behind_the_gate(work)

    async def GetWorkloadStatus(
        self, request: wire.GetWorkloadStatusRequest, context: Context
    ) -> wire.GetWorkloadStatusResponse:
        """One workload, with its task in flight."""
        await self._gate.wait()
        report = self._model.status(request.id, self._clock.now())
        if report is None:
            await context.abort(grpc.StatusCode.UNKNOWN, _STATUS_NOT_FOUND)
        return wire.GetWorkloadStatusResponse(status=_status(report))

    async def ListWorkloads(
        self, request: wire.ListWorkloadsRequest, context: Context
    ) -> wire.ListWorkloadsResponse:
        """All workloads; tasks in flight do not show."""
        await self._gate.wait()
        reports = self._model.list(self._clock.now(), workload_type(request.type))
        return wire.ListWorkloadsResponse(workloads=map(_status, reports))

    async def HealthCheck(
        self, request: wire.HealthCheckRequest, context: Context
    ) -> wire.HealthCheckResponse:
        """Always healthy, as the agents in the field are."""
        await self._gate.wait()
        settings = self._model.settings
        return wire.HealthCheckResponse(
            healthy=True,
            version=settings.version,
            runtime_status=dict.fromkeys(sorted(settings.workload_types), "healthy"),
            memory_utilization=25.0,
            cpu_utilization=10.0,
            disk_utilization=30.0,
        )

    async def ListActions(
        self, request: wire.ListActionsRequest, context: Context
    ) -> wire.ListActionsResponse:
        """The history of tasks."""
        await self._gate.wait()
        tasks = self._model.actions(
            self._clock.now(),
            workload_id=request.workload_id.strip(),
            kind=request.action_type.strip(),
            status=request.status.strip(),
        )
        ordered = tasks[::-1] if request.newest_first else tasks
        limit = request.limit if request.limit > 0 else len(ordered)
        return wire.ListActionsResponse(actions=map(_action, ordered[:limit]))

    async def StreamLogs(
        self, request: wire.StreamLogsRequest, context: Context
    ) -> AsyncIterator[wire.LogLine]:
        """What befell the workload, as its output."""
        output = await self._present(request.id, context)
        async for line in output.lines(tail=max(request.tail, 0), follow=request.follow):
            await self._gate.wait()
            yield wire.LogLine(
                text=line.text,
                stream=line.stream,
                at_ms=int(line.at.timestamp() * 1000) if line.at else 0,
            )

    async def Exec(
        self, request_iterator: AsyncIterator[wire.ExecRequest], context: Context
    ) -> AsyncIterator[wire.ExecResponse]:
        """Always refused: there is nothing that a command could run in."""
        async for request in request_iterator:
            await self._present(request.start.id, context)
            yield await _run_nothing(context)

    async def _present(self, workload_id: str, context: Context) -> SimulatedOutput:
        """The output of a workload that is there; ends the call where there is none."""
        await self._gate.wait()
        if not self._is_interactive:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        output = SimulatedOutput(self._model, self._clock, workload_id)
        if not output.is_there():
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no workload {workload_id!r} here")
        return output

    def drop(self) -> None:
        """The process is gone: what it took in while it was paused is lost."""
        for task in self._late:
            task.cancel()

    async def _behind_the_gate(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` once the node is not paused, whether or not the caller still waits."""

        async def late() -> T:
            await self._gate.wait()
            return await work()

        task = asyncio.get_running_loop().create_task(late())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        return await asyncio.shield(task)

    async def _settled(self, reply: Reply) -> Reply:
        """The reply; where the queue was full it comes when the work is done."""
        while reply.task is not None:
            now = self._clock.now()
            late = self._model.settled(reply.task, now)
            if late is not None:
                return late
            due = self._model.next_event_at() or now + _IDLE_WAIT
            await self._clock.sleep(max(due - now, _LEAST_WAIT))
        return reply


async def _run_nothing(context: Context) -> wire.ExecResponse:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "simulated workloads run no commands")


def _status(report: AgentReport) -> wire.WorkloadStatus:
    return reported(report, report.reported_at, report.metadata)


def _action(task: AgentTask) -> wire.AgentAction:
    return wire.AgentAction(
        task_id=task.id,
        workload_id=task.workload_id,
        action_type=task.kind,
        status=task.status,
        error=task.error,
        created_at=_seconds(task.created_at),
        started_at=_seconds(task.started_at),
        ended_at=_seconds(task.ended_at),
    )


def _seconds(at: datetime | None) -> int:
    return int(at.timestamp()) if at else _NEVER

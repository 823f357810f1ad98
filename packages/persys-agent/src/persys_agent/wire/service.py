"""``AgentService``: the calls of a scheduler, answered at once.

Decided here: what each call answers, in the words of the agents in the field. An apply and a
delete are taken in and carried out later; nothing here waits for a runtime but status queries,
which have a deadline of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from persys_agent.engine.board import NothingKnownError
from persys_agent.engine.wishes import wish_from
from persys_agent.engine.works import Works
from persys_agent.specs import BadSpecError, workload_type
from persys_agent.state.lock import StateError
from persys_agent.state.records import TaskKind
from persys_agent.wire import messages
from persys_agent.wire.epochs import epoch_of
from persys_agent.wire.gate import Gate, disk_failed
from persys_agent.wire.health import HealthView
from persys_agent.wire.streams import Sessions, StreamRefusedError
from persys_core.model.ids import WorkloadId, is_valid_id
from persys_core.model.usage import WorkloadUsage
from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.agent.v1 import agent_pb2_grpc

__all__ = ["AgentService"]

_STATUS_NOT_FOUND = "status not found: status not found"

Context = grpc.aio.ServicerContext[Any, Any]


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """One node's service. ``usage`` is the newest measurement of each workload."""

    def __init__(
        self,
        works: Works,
        gate: Gate,
        health: HealthView,
        sessions: Sessions,
        usage: Mapping[WorkloadId, WorkloadUsage],
    ) -> None:
        self._works = works
        self._gate = gate
        self._health = health
        self._sessions = sessions
        self._usage = usage

    async def ApplyWorkload(
        self, request: wire.ApplyWorkloadRequest, context: Context
    ) -> wire.ApplyWorkloadResponse:
        """Take an apply in. ``applied`` means accepted."""
        if refusal := _bad_id(request.id) or await self._gate.refuse_stale(epoch_of(context)):
            return wire.ApplyWorkloadResponse(message=refusal)
        try:
            wish = wish_from(request)
        except BadSpecError as error:
            return wire.ApplyWorkloadResponse(message=str(error))
        unfit = self._gate.refuse_unfit(request.id, wish.spec)
        is_orphan = self._works.board.is_orphan(request.id)
        if refusal := unfit or self._gate.refuse_new(request.id, is_orphan=is_orphan):
            return wire.ApplyWorkloadResponse(message=refusal)
        try:
            task = await self._works.queue.submit(
                TaskKind.APPLY, wish.workload_id, request=wish.request, revision_id=wish.revision_id
            )
        except StateError as error:
            return wire.ApplyWorkloadResponse(message=disk_failed(error))
        now = self._works.clock.now()
        return wire.ApplyWorkloadResponse(
            applied=True,
            message="workload apply submitted for processing",
            status=wire.WorkloadStatus(
                id=wish.workload_id,
                actual_state=wire.ACTUAL_STATE_PENDING,
                message="task pending execution",
                updated_at=int(now.timestamp()),
                metadata={"task_id": task.id, "task_status": "pending"},
            ),
        )

    async def DeleteWorkload(
        self, request: wire.DeleteWorkloadRequest, context: Context
    ) -> wire.DeleteWorkloadResponse:
        """Take a delete in; of what is not there it succeeds."""
        if refusal := _bad_id(request.id) or await self._gate.refuse_stale(epoch_of(context)):
            return wire.DeleteWorkloadResponse(message=refusal)
        try:
            await self._works.queue.submit(
                TaskKind.DELETE, request.id, delete_volumes=request.delete_volumes
            )
        except StateError as error:
            return wire.DeleteWorkloadResponse(message=disk_failed(error))
        return wire.DeleteWorkloadResponse(
            success=True, message="workload deletion submitted for processing"
        )

    async def GetWorkloadStatus(
        self, request: wire.GetWorkloadStatusRequest, context: Context
    ) -> wire.GetWorkloadStatusResponse:
        """One workload, with its task in flight."""
        try:
            report = await self._works.board.report(request.id) if request.id else None
        except NothingKnownError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        if report is None:
            await context.abort(grpc.StatusCode.UNKNOWN, _STATUS_NOT_FOUND)
        now = self._works.clock.now()
        status = messages.status(report, now, self._usage.get(request.id))
        return wire.GetWorkloadStatusResponse(status=status)

    async def ListWorkloads(
        self, request: wire.ListWorkloadsRequest, context: Context
    ) -> wire.ListWorkloadsResponse:
        """All workloads, orphans among them, with their tasks in flight."""
        reports = await self._works.board.reports(workload_type(request.type))
        now = self._works.clock.now()
        return wire.ListWorkloadsResponse(
            workloads=(
                messages.status(each, now, self._usage.get(each.workload_id)) for each in reports
            )
        )

    async def HealthCheck(
        self, request: wire.HealthCheckRequest, context: Context
    ) -> wire.HealthCheckResponse:
        """Whether the agent can do its work, by what was measured last."""
        return self._health.response()

    async def ListActions(
        self, request: wire.ListActionsRequest, context: Context
    ) -> wire.ListActionsResponse:
        """The history of tasks."""
        tasks = self._works.queue.history.find(
            workload_id=request.workload_id.strip(),
            kind=request.action_type.strip(),
            state=request.status.strip(),
        )
        found = messages.ordered(tasks, newest_first=request.newest_first, limit=request.limit)
        return wire.ListActionsResponse(actions=map(messages.action, found))

    async def StreamLogs(
        self, request: wire.StreamLogsRequest, context: Context
    ) -> AsyncIterator[wire.LogLine]:
        """A workload's output, until it ends or the caller leaves."""
        try:
            async with aclosing(self._sessions.logs(request)) as lines:
                async for line in lines:
                    yield line
        except StreamRefusedError as error:
            await context.abort(error.code, str(error))

    async def Exec(
        self, request_iterator: AsyncIterator[wire.ExecRequest], context: Context
    ) -> AsyncIterator[wire.ExecResponse]:
        """A command inside a workload; it ends when the caller leaves."""
        try:
            async with aclosing(self._sessions.execute(request_iterator)) as answers:
                async for answer in answers:
                    yield answer
        except StreamRefusedError as error:
            await context.abort(error.code, str(error))


def _bad_id(workload_id: str) -> str:
    if is_valid_id(workload_id):
        return ""
    return (
        "[INVALID_SPEC] invalid workload id: accepted are 1 to 253 letters, digits, '.', '_' and"
        " '-', beginning with a letter or a digit"
    )

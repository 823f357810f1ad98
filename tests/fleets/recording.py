"""What a real node did, written into a journal as simulated nodes keep one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio

from persys_agent.clock import SystemClock
from persys_agent.control_client import ControlClient
from persys_agent.runtimes.docker.runtime import DockerRuntime
from persys_agent.runtimes.port import Creation, Order, Owner
from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState
from persys_core.sim.agent_journal import Happening, Journal

__all__ = ["Door", "GatedScheduler", "RecordingRuntime"]

_WRITTEN = {"ApplyWorkload": Happening.APPLY, "DeleteWorkload": Happening.DELETE}
_COUNTED = {"ListWorkloads": "list", "GetWorkloadStatus": "status", "ListActions": "actions"}
_RUNS = (AgentState.RUNNING, AgentState.PENDING)


class RecordingRuntime(DockerRuntime):
    """A Docker runtime that writes down what it changed."""

    def __init__(self, endpoint: str, owner: Owner, journal: Journal) -> None:
        super().__init__(endpoint, owner)
        self._journal = journal

    async def create(self, order: Order) -> Creation:
        done = await super().create(order)
        if done is not Creation.ADOPTED:
            self._write(Happening.CREATED, order.workload_id)
        return done

    async def start(self, workload_id: WorkloadId) -> None:
        ran = await self._runs(workload_id)
        await super().start(workload_id)
        if not ran:
            self._write(Happening.STARTED, workload_id)

    async def stop(self, workload_id: WorkloadId, grace: timedelta) -> None:
        ran = await self._runs(workload_id)
        await super().stop(workload_id, grace)
        if ran:
            self._write(Happening.STOPPED, workload_id)

    async def remove(self, workload_id: WorkloadId, *, with_data: bool = False) -> None:
        was_there = await self.inspect(workload_id) is not None
        await super().remove(workload_id, with_data=with_data)
        if was_there:
            self._write(Happening.REMOVED, workload_id)

    async def _runs(self, workload_id: WorkloadId) -> bool:
        found = await self.inspect(workload_id)
        return found is not None and found.state in _RUNS

    def _write(self, what: Happening, workload_id: WorkloadId) -> None:
        self._journal.write(SystemClock().now(), what, workload_id)


class Door(grpc.aio.ServerInterceptor):
    """Every call comes through here: it waits while the node is paused, and is written down."""

    def __init__(self, journal: Journal, gate: asyncio.Event) -> None:
        self._journal = journal
        self._gate = gate

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        method = handler_call_details.method.rpartition("/")[2]

        async def answer(request: Any, context: Any) -> Any:
            await self._gate.wait()
            self._note(method, request)
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            answer, handler.request_deserializer, handler.response_serializer
        )

    def _note(self, method: str, request: Any) -> None:
        if method in _WRITTEN:
            self._journal.write(SystemClock().now(), _WRITTEN[method], request.id)
        elif method in _COUNTED:
            self._journal.count(_COUNTED[method])


class GatedScheduler:
    """The scheduler, which hears nothing of a node that is paused."""

    def __init__(self, client: ControlClient, journal: Journal, gate: asyncio.Event) -> None:
        self._client = client
        self._journal = journal
        self._gate = gate

    async def register(self, node: RegisterNode) -> RegisterAnswer:
        """RegisterNode."""
        await self._gate.wait()
        return await self._client.register(node)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Heartbeat."""
        await self._gate.wait()
        answer = await self._client.heartbeat(beat)
        self._journal.count("heartbeat")
        return answer

"""``GrpcAgents``: the Agents port over `persys.agent.v1`.

Decided here: how a call is made, so that it always ends: a slot of the node's, a deadline that
covers the wait for it, and a cancellation that reaches the wire. Messages are built in ``specs``,
answers read in ``answers``, connections kept in ``channels``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import grpc.aio

from persys_adapters.agent_grpc.answers import (
    clean,
    failure,
    is_unknown_to_agent,
    refusal,
    report,
)
from persys_adapters.agent_grpc.channels import ChannelOpener, ChannelPool, Lane, plain_opener
from persys_adapters.agent_grpc.specs import SpecNotExpressibleError, apply_message, sent_secrets
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.observation import AgentState
from persys_core.model.spec import secret_values
from persys_core.ports.agents import (
    Accepted,
    AgentHealth,
    ApplyOutcome,
    ApplyRequest,
    DeleteOutcome,
    DeleteRequest,
    ListOutcome,
    NotFound,
    Refused,
    StatusOutcome,
    Unreachable,
)
from persys_proto.agent.v1 import agent_pb2 as wire

if TYPE_CHECKING:
    from persys_proto.agent.v1.agent_pb2_grpc import AgentServiceAsyncStub

__all__ = ["EPOCH_METADATA", "GrpcAgents"]

EPOCH_METADATA = "persys-epoch"
_NO_SECRETS: frozenset[str] = frozenset()

Q = TypeVar("Q")
R = TypeVar("R")
Headers = tuple[tuple[str, str], ...]
_Method = Callable[["AgentServiceAsyncStub"], "grpc.aio.UnaryUnaryMultiCallable[Q, R]"]


class GrpcAgents:
    """See ``ports.agents.Agents``. Belongs to the event loop on which it is first used.

    ``calls_per_node`` bounds the calls that are on their way to one node; further ones wait for
    their turn within their own deadline, and calls to other nodes do not wait at all. ``headers``
    tells what goes along with each call besides the epoch (see ``ports.tracer``).
    """

    def __init__(
        self,
        opener: ChannelOpener | None = None,
        *,
        calls_per_node: int = 8,
        headers: Callable[[], Headers] = lambda: (),
    ) -> None:
        self._pool = ChannelPool(opener or plain_opener(), calls_per_node)
        self._headers = headers
        self._secrets: dict[NodeId, dict[WorkloadId, frozenset[str]]] = {}

    @property
    def open_channels(self) -> int:
        """How many channels are open, those that are about to close included."""
        return self._pool.open_channels

    def reopen(self, opener: ChannelOpener) -> None:
        """Use new certificates from now on: every channel is replaced when it is next used."""
        self._pool.reopen(opener)

    async def apply(self, node: Node, request: ApplyRequest, timeout: timedelta) -> ApplyOutcome:
        """As the port says; a spec that agents cannot be told is Refused as ``invalid_spec``."""
        try:
            message = apply_message(request)
        except SpecNotExpressibleError as error:
            return Refused(str(error), "invalid_spec")
        secrets = secret_values(request.spec) | sent_secrets(message)
        self._remember(node.id, request.workload_id, secrets)
        answer = await self._call(
            node,
            lambda stub: stub.ApplyWorkload,
            message,
            timeout,
            epoch=request.epoch,
            secrets=secrets,
        )
        if isinstance(answer, wire.ApplyWorkloadResponse):
            return _apply_outcome(answer, secrets)
        return _as_refusal(answer)

    async def delete(self, node: Node, request: DeleteRequest, timeout: timedelta) -> DeleteOutcome:
        """As the port says."""
        message = wire.DeleteWorkloadRequest(
            id=request.workload_id, delete_volumes=request.delete_volumes
        )
        answer = await self._call(
            node, lambda stub: stub.DeleteWorkload, message, timeout, epoch=request.epoch
        )
        if not isinstance(answer, wire.DeleteWorkloadResponse):
            return answer
        if answer.success:
            return Accepted()
        return NotFound() if is_unknown_to_agent(answer.message) else refusal(answer.message)

    async def status(
        self, node: Node, workload_id: WorkloadId, timeout: timedelta
    ) -> StatusOutcome:
        """As the port says."""
        secrets = self._secrets_of(node.id, workload_id)
        answer = await self._call(
            node,
            lambda stub: stub.GetWorkloadStatus,
            wire.GetWorkloadStatusRequest(id=workload_id),
            timeout,
            secrets=secrets,
        )
        if not isinstance(answer, wire.GetWorkloadStatusResponse):
            return answer
        found = report(answer.status, secrets)
        is_absent = found.state is AgentState.FAILED and is_unknown_to_agent(found.message)
        return NotFound() if is_absent else found

    async def list(self, node: Node, timeout: timedelta) -> ListOutcome:
        """As the port says."""
        answer = await self._call(
            node, lambda stub: stub.ListWorkloads, wire.ListWorkloadsRequest(), timeout
        )
        if isinstance(answer, wire.ListWorkloadsResponse):
            known = self._secrets.get(node.id, {})
            return tuple(report(each, known.get(each.id, ())) for each in answer.workloads)
        return _as_refusal(answer)

    async def last_error(self, node: Node, workload_id: WorkloadId, timeout: timedelta) -> str:
        """As the port says."""
        message = wire.ListActionsRequest(workload_id=workload_id, limit=1, newest_first=True)
        answer = await self._call(node, lambda stub: stub.ListActions, message, timeout)
        if not isinstance(answer, wire.ListActionsResponse) or not answer.actions:
            return ""
        newest = answer.actions[0]
        if newest.status != "failed":
            return ""
        return clean(newest.error, self._secrets_of(node.id, workload_id))

    async def health(self, node: Node, timeout: timedelta) -> AgentHealth | Refused | Unreachable:
        """What the agent says of itself; costs the agents in the field a second of sampling."""
        answer = await self._call(
            node, lambda stub: stub.HealthCheck, wire.HealthCheckRequest(), timeout
        )
        if isinstance(answer, wire.HealthCheckResponse):
            return AgentHealth(answer.healthy, answer.version)
        return _as_refusal(answer)

    async def forget(self, node_id: NodeId) -> None:
        """As the port says."""
        self._secrets.pop(node_id, None)
        await self._pool.forget(node_id)

    async def aclose(self) -> None:
        """As the port says."""
        self._secrets.clear()
        await self._pool.aclose()

    async def _call(
        self,
        node: Node,
        method: _Method[Q, R],
        message: Q,
        timeout: timedelta,
        *,
        epoch: int = 0,
        secrets: Collection[str] = (),
    ) -> R | NotFound | Refused | Unreachable:
        lane = self._pool.lane(node)
        deadline = asyncio.get_running_loop().time() + timeout.total_seconds()
        if not await _took_slot(lane, timeout):
            return Unreachable(
                f"node {node.id} at {node.endpoint}: earlier calls to it have not ended",
                deadline_exceeded=True,
            )
        try:
            answer = await self._on_wire(lane, method, message, deadline, epoch)
        except grpc.aio.AioRpcError as error:
            outcome = failure(node, error, secrets)
            if isinstance(outcome, Unreachable) and outcome.deadline_exceeded:
                self._pool.was_silent(lane)
            return outcome
        except asyncio.CancelledError:
            if _caller_gave_up():
                raise
            return Unreachable(f"node {node.id} at {node.endpoint}: the connection was closed")
        finally:
            lane.slots.release()
        lane.answered()
        return answer

    async def _on_wire(
        self, lane: Lane, method: _Method[Q, R], message: Q, deadline: float, epoch: int
    ) -> R:
        left = deadline - asyncio.get_running_loop().time()
        metadata = self._headers()
        if epoch:
            metadata = (*metadata, (EPOCH_METADATA, str(epoch)))
        call = method(self._pool.stub(lane))(message, timeout=max(left, 0.001), metadata=metadata)
        try:
            return await call
        finally:
            # A call that nobody awaits goes on by itself; cancelling a finished one does nothing.
            call.cancel()

    def _remember(self, node_id: NodeId, workload_id: WorkloadId, secrets: frozenset[str]) -> None:
        if secrets:
            self._secrets.setdefault(node_id, {})[workload_id] = secrets
        else:
            self._secrets.get(node_id, {}).pop(workload_id, None)

    def _secrets_of(self, node_id: NodeId, workload_id: WorkloadId) -> frozenset[str]:
        return self._secrets.get(node_id, {}).get(workload_id, _NO_SECRETS)


async def _took_slot(lane: Lane, timeout: timedelta) -> bool:
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await lane.slots.acquire()
    except TimeoutError:
        return False
    return True


def _caller_gave_up() -> bool:
    """Whether this task was cancelled, rather than the call by the closing of its channel."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _apply_outcome(answer: wire.ApplyWorkloadResponse, secrets: Collection[str]) -> ApplyOutcome:
    if not answer.applied and not answer.skipped:
        return refusal(answer.message, secrets)
    has_status = answer.HasField("status") and bool(answer.status.id)
    return Accepted(
        skipped=answer.skipped,
        report=report(answer.status, secrets) if has_status else None,
    )


def _as_refusal(answer: NotFound | Refused | Unreachable) -> Refused | Unreachable:
    """Where "not found" makes no sense, an agent that says so refuses."""
    return Refused("not found", "not_found") if isinstance(answer, NotFound) else answer

"""The cluster as a client sees it: asked for again and again, and at once when something happens.

Decided here: when to look. ``Picture`` is what was seen last; ``ClusterEye`` keeps it up to date
and lets others wait for what they want to see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import grpc.aio
from attrs import evolve, frozen

from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2 as pb

__all__ = ["ClusterEye", "Picture"]

_LOOK_EVERY_SECONDS = 0.5
_DEADLINE_SECONDS = 10.0
_EVENTS_KEPT = 200


@frozen
class Picture:
    """Nodes and workloads in the order of their ids; events oldest first."""

    nodes: tuple[pb.NodeView, ...] = ()
    workloads: tuple[pb.WorkloadView, ...] = ()
    events: tuple[pb.SchedulerEventView, ...] = ()

    def workload(self, workload_id: str) -> pb.WorkloadView | None:
        """One workload; ``None`` where there is none of this name."""
        return next((each for each in self.workloads if each.workload_id == workload_id), None)

    def node(self, node_id: str) -> pb.NodeView | None:
        """One node; ``None`` where there is none of this name."""
        return next((each for each in self.nodes if each.node_id == node_id), None)

    def on_node(self, node_id: str) -> tuple[pb.WorkloadView, ...]:
        """What is assigned to a node."""
        return tuple(each for each in self.workloads if each.assigned_node_id == node_id)


class ClusterEye:
    """Sees a cluster through its gRPC API. ``on_change`` hears of every new picture."""

    def __init__(self, channel: grpc.aio.Channel, on_change: Callable[[Picture], None]) -> None:
        self.picture = Picture()
        self._stub = agent_control_stub(channel)
        self._on_change = on_change
        self._look_now = asyncio.Event()
        self._seen = asyncio.Condition()

    async def follow(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_events())
            group.create_task(self._follow_views())

    async def until(self, holds: Callable[[Picture], bool], seconds: float) -> bool:
        """Wait until ``holds`` is true of a picture; false where it is not in ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._seen:
                await self._seen.wait_for(lambda: holds(self.picture))
        return holds(self.picture)

    async def apply(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
        """Store a wish. Raises ``grpc.aio.AioRpcError``."""
        return await self._stub.ApplyWorkload(request, timeout=_DEADLINE_SECONDS)

    async def explain(self, workload_id: str) -> pb.Explanation:
        """Why a workload stands where it stands. Raises ``grpc.aio.AioRpcError``."""
        request = pb.ExplainWorkloadRequest(workload_id=workload_id, max_examples=3)
        answer = await self._stub.ExplainWorkload(request, timeout=_DEADLINE_SECONDS)
        return answer.explanation

    async def _follow_events(self) -> None:
        while True:
            with suppress(grpc.aio.AioRpcError):
                async for event in self._stub.WatchEvents(pb.WatchEventsRequest()):
                    events = (*self.picture.events, event)[-_EVENTS_KEPT:]
                    self.picture = evolve(self.picture, events=events)
                    self._look_now.set()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)

    async def _follow_views(self) -> None:
        while True:
            self._look_now.clear()
            with suppress(grpc.aio.AioRpcError):
                await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_SECONDS):
                    await self._look_now.wait()

    async def _look(self) -> None:
        nodes = await self._stub.ListNodes(pb.ListNodesRequest(), timeout=_DEADLINE_SECONDS)
        workloads = await self._stub.ListWorkloads(
            pb.ListWorkloadsRequest(), timeout=_DEADLINE_SECONDS
        )
        self.picture = evolve(
            self.picture, nodes=tuple(nodes.nodes), workloads=tuple(workloads.workloads)
        )
        self._on_change(self.picture)
        async with self._seen:
            self._seen.notify_all()

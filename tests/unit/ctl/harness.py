"""A fake scheduler on a real port, and one call of persysctl with its streams caught."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persysctl.session import Surroundings, run

if TYPE_CHECKING:
    from persys_proto.control.v1.control_pb2_grpc import _ServicerContext as Context

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)

Metadata = Sequence[tuple[str, str | bytes]]


def at(seconds: int) -> Timestamp:
    """The instant so many seconds after NOW."""
    return Timestamp(seconds=int(NOW.timestamp()) + seconds)


@dataclass(frozen=True)
class Refusal:
    """How a call ends instead of being answered."""

    code: grpc.StatusCode
    text: str = ""
    metadata: Metadata = ()


@dataclass
class FakeScheduler(control_pb2_grpc.AgentControlServicer):
    """Answers from dictionaries; a test fills and changes them, and reads what was asked."""

    workloads: dict[str, pb.WorkloadView] = field(default_factory=dict)
    nodes: dict[str, pb.NodeView] = field(default_factory=dict)
    events: list[pb.SchedulerEventView] = field(default_factory=list)
    explanations: dict[str, pb.Explanation] = field(default_factory=dict)
    plans: dict[str, pb.PlanWorkloadResponse] = field(default_factory=dict)
    apply_answers: dict[str, pb.ApplyWorkloadResponse] = field(default_factory=dict)
    retry_answers: dict[str, pb.RetryWorkloadResponse] = field(default_factory=dict)
    volumes: list[pb.VolumeView] = field(default_factory=list)
    drifts: list[pb.DriftView] = field(default_factory=list)
    imported: pb.ImportFromAgentsResponse = field(default_factory=pb.ImportFromAgentsResponse)
    summary: pb.GetClusterSummaryResponse = field(default_factory=pb.GetClusterSummaryResponse)
    progress: dict[str, pb.GetDrainProgressResponse] = field(default_factory=dict)
    replaced: str = ""
    delete_outcome: str = "Deleting"
    refusals: dict[str, Refusal] = field(default_factory=dict)
    asked: list[Message] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    stale: bool = False
    on_get: Callable[[str], None] = lambda _: None
    on_progress: Callable[[str], None] = lambda _: None
    on_watch: Callable[[pb.WatchEventsRequest], None] = lambda _: None
    live: asyncio.Queue[pb.SchedulerEventView | Refusal] = field(default_factory=asyncio.Queue)

    async def _enter(self, request: Message, context: Context) -> None:
        self.asked.append(request)
        metadata = dict(context.invocation_metadata() or ())
        self.request_ids.append(str(metadata.get("x-request-id", "")))
        refusal = self.refusals.get(type(request).__name__.removesuffix("Request"))
        if refusal is not None:
            await _abort(context, refusal)

    async def ApplyWorkload(
        self, request: pb.ApplyWorkloadRequest, context: Context
    ) -> pb.ApplyWorkloadResponse:
        await self._enter(request, context)
        answer = pb.ApplyWorkloadResponse(success=True, outcome="Created", revision_id="r1")
        return self.apply_answers.get(request.workload_id, answer)

    async def PlanWorkload(
        self, request: pb.PlanWorkloadRequest, context: Context
    ) -> pb.PlanWorkloadResponse:
        await self._enter(request, context)
        name = request.apply.workload_id
        if name not in self.plans:
            await _abort(context, Refusal(grpc.StatusCode.FAILED_PRECONDITION, f"{name} is going"))
        return self.plans[name]

    async def DeleteWorkload(
        self, request: pb.DeleteWorkloadRequest, context: Context
    ) -> pb.DeleteWorkloadResponse:
        await self._enter(request, context)
        if request.workload_id not in self.workloads:
            await _abort(context, _not_found("workload", request.workload_id))
        del self.workloads[request.workload_id]
        return pb.DeleteWorkloadResponse(success=True, outcome=self.delete_outcome)

    async def RetryWorkload(
        self, request: pb.RetryWorkloadRequest, context: Context
    ) -> pb.RetryWorkloadResponse:
        await self._enter(request, context)
        answer = pb.RetryWorkloadResponse(accepted=request.workload_id in self.workloads)
        return self.retry_answers.get(request.workload_id, answer)

    async def GetWorkload(
        self, request: pb.GetWorkloadRequest, context: Context
    ) -> pb.GetWorkloadResponse:
        self.on_get(request.workload_id)
        await self._enter(request, context)
        if request.workload_id not in self.workloads:
            await _abort(context, _not_found("workload", request.workload_id))
        view = self.workloads[request.workload_id]
        return pb.GetWorkloadResponse(workload=view, stale=self.stale)

    async def ListWorkloads(
        self, request: pb.ListWorkloadsRequest, context: Context
    ) -> pb.ListWorkloadsResponse:
        await self._enter(request, context)
        found = [
            view
            for view in self.workloads.values()
            if request.status in ("", view.status)
            and request.node_id in ("", view.assigned_node_id)
        ]
        return pb.ListWorkloadsResponse(
            workloads=found, store_revision=7, stale=self.stale, age_seconds=12 * self.stale
        )

    async def GetNode(self, request: pb.GetNodeRequest, context: Context) -> pb.GetNodeResponse:
        await self._enter(request, context)
        return pb.GetNodeResponse(node=await self._named(request.node_id, context))

    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        await self._enter(request, context)
        found = [view for view in self.nodes.values() if request.status in ("", view.status)]
        return pb.ListNodesResponse(nodes=found, store_revision=7)

    async def CordonNode(
        self, request: pb.CordonNodeRequest, context: Context
    ) -> pb.CordonNodeResponse:
        await self._enter(request, context)
        return pb.CordonNodeResponse(accepted=True, node=pb.NodeView(node_id=request.node_id))

    async def UncordonNode(
        self, request: pb.UncordonNodeRequest, context: Context
    ) -> pb.UncordonNodeResponse:
        await self._enter(request, context)
        return pb.UncordonNodeResponse(accepted=False, message="the node is draining")

    async def DrainNode(
        self, request: pb.DrainNodeRequest, context: Context
    ) -> pb.DrainNodeResponse:
        await self._enter(request, context)
        view = await self._named(request.node_id, context)
        view.draining = True
        progress = self.progress.get(request.node_id, pb.GetDrainProgressResponse())
        return pb.DrainNodeResponse(
            accepted=True,
            relocated_workloads=progress.remaining,
            node=view,
            replaced=self.replaced,
        )

    async def UndrainNode(
        self, request: pb.UndrainNodeRequest, context: Context
    ) -> pb.UndrainNodeResponse:
        await self._enter(request, context)
        view = await self._named(request.node_id, context)
        view.draining = view.cordoned = False
        return pb.UndrainNodeResponse(accepted=True, node=view)

    async def GetDrainProgress(
        self, request: pb.GetDrainProgressRequest, context: Context
    ) -> pb.GetDrainProgressResponse:
        self.on_progress(request.node_id)
        await self._enter(request, context)
        await self._named(request.node_id, context)
        return self.progress.get(request.node_id, pb.GetDrainProgressResponse())

    async def TaintNode(
        self, request: pb.TaintNodeRequest, context: Context
    ) -> pb.TaintNodeResponse:
        await self._enter(request, context)
        view = await self._named(request.node_id, context)
        view.taints.append(request.taint)
        return pb.TaintNodeResponse(accepted=True, message="tainted", node=view)

    async def UntaintNode(
        self, request: pb.UntaintNodeRequest, context: Context
    ) -> pb.UntaintNodeResponse:
        await self._enter(request, context)
        view = await self._named(request.node_id, context)
        return pb.UntaintNodeResponse(accepted=True, message="no such taint now", node=view)

    async def SetNodeLabel(
        self, request: pb.SetNodeLabelRequest, context: Context
    ) -> pb.SetNodeLabelResponse:
        await self._enter(request, context)
        view = await self._named(request.node_id, context)
        view.labels[request.key] = request.value
        return pb.SetNodeLabelResponse(accepted=True, message=f"{request.key} set", node=view)

    async def DeleteNodeLabel(
        self, request: pb.DeleteNodeLabelRequest, context: Context
    ) -> pb.DeleteNodeLabelResponse:
        await self._enter(request, context)
        view = await self._named(request.node_id, context)
        return pb.DeleteNodeLabelResponse(accepted=True, message=f"{request.key} gone", node=view)

    async def RemoveNode(
        self, request: pb.RemoveNodeRequest, context: Context
    ) -> pb.RemoveNodeResponse:
        await self._enter(request, context)
        await self._named(request.node_id, context)
        if not request.force:
            return pb.RemoveNodeResponse(message="it has workloads: web", workload_ids=["web"])
        return pb.RemoveNodeResponse(accepted=True, message="removed", workload_ids=["web"])

    async def FenceNode(
        self, request: pb.FenceNodeRequest, context: Context
    ) -> pb.FenceNodeResponse:
        await self._enter(request, context)
        view = await self._named(request.node_id, context)
        if view.status == "Ready":
            await _abort(context, Refusal(grpc.StatusCode.FAILED_PRECONDITION, "it still beats"))
        return pb.FenceNodeResponse(accepted=True, message="fenced", volume_ids=["nfs:data"])

    async def ListVolumes(
        self, request: pb.ListVolumesRequest, context: Context
    ) -> pb.ListVolumesResponse:
        await self._enter(request, context)
        return pb.ListVolumesResponse(volumes=self.volumes, store_revision=7, stale=self.stale)

    async def ReleaseVolume(
        self, request: pb.ReleaseVolumeRequest, context: Context
    ) -> pb.ReleaseVolumeResponse:
        await self._enter(request, context)
        found = [view for view in self.volumes if view.disk.id == request.volume_id]
        if not found:
            await _abort(context, _not_found("volume", request.volume_id))
        if found[0].disk.workload_refs and not request.force:
            return pb.ReleaseVolumeResponse(message="it is in use", volume=found[0])
        return pb.ReleaseVolumeResponse(accepted=True, message="given up", volume=found[0])

    async def _named(self, node_id: str, context: Context) -> pb.NodeView:
        if node_id not in self.nodes:
            await _abort(context, _not_found("node", node_id))
        return self.nodes[node_id]

    async def ExplainWorkload(
        self, request: pb.ExplainWorkloadRequest, context: Context
    ) -> pb.ExplainWorkloadResponse:
        await self._enter(request, context)
        if request.workload_id not in self.explanations:
            await _abort(context, _not_found("workload", request.workload_id))
        return pb.ExplainWorkloadResponse(explanation=self.explanations[request.workload_id])

    async def ListDrifts(
        self, request: pb.ListDriftsRequest, context: Context
    ) -> pb.ListDriftsResponse:
        await self._enter(request, context)
        if request.node_id and self.nodes:
            await self._named(request.node_id, context)
        return pb.ListDriftsResponse(drifts=self.drifts, stale=self.stale)

    async def ImportFromAgents(
        self, request: pb.ImportFromAgentsRequest, context: Context
    ) -> pb.ImportFromAgentsResponse:
        await self._enter(request, context)
        answer = pb.ImportFromAgentsResponse()
        answer.CopyFrom(self.imported)
        answer.dry_run = request.dry_run
        return answer

    async def AcknowledgeEmpty(
        self, request: pb.AcknowledgeEmptyRequest, context: Context
    ) -> pb.AcknowledgeEmptyResponse:
        await self._enter(request, context)
        return pb.AcknowledgeEmptyResponse(accepted=True, message="taken", mode="normal")

    async def GetClusterSummary(
        self, request: pb.GetClusterSummaryRequest, context: Context
    ) -> pb.GetClusterSummaryResponse:
        await self._enter(request, context)
        return self.summary

    async def ListEvents(
        self, request: pb.ListEventsRequest, context: Context
    ) -> pb.ListEventsResponse:
        await self._enter(request, context)
        return pb.ListEventsResponse(events=self.events)

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Context
    ) -> AsyncIterator[pb.SchedulerEventView]:
        await self._enter(request, context)
        self.on_watch(request)
        ids = [event.id for event in self.events]
        start = ids.index(request.after_id) + 1 if request.after_id in ids else 0
        for event in self.events[start:]:
            yield event
        while True:
            item = await self.live.get()
            if isinstance(item, Refusal):
                await _abort(context, item)
            yield item


def _not_found(kind: str, name: str) -> Refusal:
    return Refusal(grpc.StatusCode.NOT_FOUND, f"{kind} {name!r} not found")


async def _abort(context: grpc.aio.ServicerContext[Message, Message], refusal: Refusal) -> NoReturn:
    await context.abort(refusal.code, refusal.text, tuple(refusal.metadata))


@asynccontextmanager
async def served(
    scheduler: FakeScheduler, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[str]:
    """The fake on a free port of this machine; the address comes out."""
    server = grpc.aio.server()
    control_pb2_grpc.add_AgentControlServicer_to_server(scheduler, server)
    port = (
        server.add_secure_port("127.0.0.1:0", credentials)
        if credentials
        else server.add_insecure_port("127.0.0.1:0")
    )
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@dataclass(frozen=True)
class Result:
    """What one call left behind."""

    code: int
    out: str
    err: str


async def call(
    *argv: str,
    environ: Mapping[str, str] | None = None,
    stdin: str = "",
    terminal: bool = False,
    home: Path = Path("/nonexistent"),
) -> Result:
    """One call of persysctl at NOW."""
    stream = FakeTerminal if terminal else io.StringIO
    out, err = stream(), stream()
    here = Surroundings(stream(stdin), out, err, environ or {}, home, lambda: NOW)
    code = await run(argv, here)
    return Result(int(code), out.getvalue(), err.getvalue())


async def ask(
    scheduler: FakeScheduler, *argv: str, stdin: str = "", terminal: bool = False
) -> Result:
    """One call of persysctl that reaches ``scheduler``."""
    async with served(scheduler) as address:
        environ = {"PERSYS_SERVER": address}
        return await call(*argv, environ=environ, stdin=stdin, terminal=terminal)

"""Small stand-ins for the scheduler behind the transport: they answer what they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import grpc.aio
from attrs import define, evolve, field, frozen

from persys_adapters.system_clock import SystemClock
from persys_core.control.answers import (
    ApplyAnswer,
    ApplyOutcomeKind,
    AutomationDecision,
    ClusterSummary,
    DeleteAnswer,
    DrainBlocker,
    DrainProgress,
    Freshness,
    HeartbeatAnswer,
    ImportAnswer,
    NodeFenced,
    NodeRemoval,
    NodeView,
    Plan,
    RegisterAnswer,
    VolumeRelease,
    VolumeView,
    WorkloadView,
)
from persys_core.control.requests import (
    AcknowledgeEmpty,
    ApplyWorkload,
    AutomationSuggestion,
    DrainNode,
    Heartbeat,
    ImportFromAgents,
    NodeIntentChange,
    NodeLabelChange,
    NodeTaintChange,
    RegisterNode,
    ReleaseVolume,
    RemoveNode,
    VolumeFilter,
)
from persys_core.control.standing import Standing
from persys_core.memory.event_log import MemoryEventLog
from persys_core.model.drift import DriftAction, DriftRecord, DriftType
from persys_core.model.errors import NotFoundError
from persys_core.model.node import Fence, Node, OperatorIntent, Taint
from persys_core.model.replica import ReplicaRecord
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec, spec_revision
from persys_core.model.spec_changes import SpecChange
from persys_core.model.states import (
    DesiredState,
    NodeStatus,
    OperatingMode,
    TaintEffect,
    WorkloadStatus,
    WorkloadType,
)
from persys_core.model.volume import Attachment, AttachmentPhase, Volume, VolumePhase
from persys_core.model.workload import StatusRecord, Workload
from persys_core.placement.explain import Explanation, Verdict
from persys_proto.aio import agent_control_stub
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.interceptors import RequestBoundary
from persys_server.grpc.server import GrpcServer
from persys_server.grpc.servicer import ControlServicer
from persys_server.observability.metrics import Metrics
from persys_server.observability.tracing import Traces
from persys_server.phase import PhaseSwitch

T = TypeVar("T")
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
FRESH = Freshness(42, stale=True, age=timedelta(seconds=3))
DRIFT = DriftRecord(
    "n1",
    "ghost",
    DriftType.ORPHAN_ON_AGENT,
    NOW,
    agent_status="Running",
    action=DriftAction.INVESTIGATE,
    last_error="remove it",
)


def node_view(node_id: str = "n1", **changes: Any) -> NodeView:
    """A Ready node of 8 cores and 16 GB that holds 1 core."""
    node = Node(
        id=node_id,
        capacity=Resources.of(cpu_millicores=8000, memory_mb=16384),
        endpoint="10.0.0.1:50051",
        workload_types=frozenset({WorkloadType.CONTAINER}),
        registered_at=NOW,
        reserved=Resources.of(cpu_millicores=1000),
        intent=changes.pop("intent", OperatorIntent()),
        fence=changes.pop("fence", None),
        stop_after_seconds=changes.pop("stop_after_seconds", 0),
    )
    values: dict[str, Any] = {
        "status": NodeStatus.READY,
        "status_reason": "",
        "allocated": Resources.of(cpu_millicores=1000),
        "workload_count": 1,
        "last_heartbeat": NOW,
    }
    return NodeView(node=node, **(values | changes))


def volume_view(volume_id: str = "nfs:data", held_reason: str = "", **changes: Any) -> VolumeView:
    """A volume on NFS that w1 alone may write to, attached on n1."""
    attachment = Attachment(
        volume_id, "w1", "n1", NOW, NOW, NOW, mount_path="/data", phase=AttachmentPhase.ATTACHED
    )
    attachments = changes.pop("attachments", (attachment,))
    values: dict[str, Any] = {
        "size_gb": 10,
        "access_mode": "ReadWriteOnce",
        "phase": VolumePhase.ATTACHED,
        "workload_refs": ("w1",),
        "attached_nodes": ("n1",),
    }
    driver, _, name = volume_id.partition(":")
    volume = Volume(volume_id, name, driver, NOW, NOW, **(values | changes))
    return VolumeView(volume, attachments, held_reason)


def workload_view(workload_id: str = "w1", spec: WorkloadSpec | None = None) -> WorkloadView:
    """A pending container."""
    wish = spec or WorkloadSpec(
        WorkloadType.CONTAINER, Resources.of(cpu_millicores=500), ContainerSpec("nginx")
    )
    workload = Workload(
        id=workload_id,
        uid="u1",
        spec=wish,
        revision_id=spec_revision(wish),
        desired_state=DesiredState.RUNNING,
        created_at=NOW,
        updated_at=NOW,
    )
    status = StatusRecord(workload_id, "u1", WorkloadStatus.PENDING, NOW)
    return WorkloadView(workload, status, assignment=None, max_attempts=5)


def standing(**changes: Any) -> Standing:
    """The leader of two replicas in failover, which acts for both nodes."""
    values: dict[str, Any] = {
        "instance_id": "replica-1",
        "role": "leader",
        "leader_id": "replica-1",
        "owned_nodes": 2,
        "replicas": (
            ReplicaRecord("replica-1", NOW, "0.1.0", address="10.0.0.1:8085"),
            ReplicaRecord("replica-2", NOW),
        ),
    }
    return Standing(**(values | changes))


def summary(**changes: Any) -> ClusterSummary:
    """Two nodes, one of them away, and three workloads."""
    values: dict[str, Any] = {
        "nodes_by_status": {NodeStatus.READY: 1, NodeStatus.NOT_READY: 1},
        "workloads_by_status": {"Running": 1, "RetryPending": 1, "Deleting": 1},
        "deleted_workloads": 1,
        "mode": OperatingMode.NORMAL,
        "mode_reason": "startup",
        "instance_id": "replica-1",
        "leader_id": "replica-1",
        "is_leader": True,
        "generated_at": NOW,
        "standing": standing(),
        "workloads_by_desired_state": {"Running": 2, "Deleted": 1},
    }
    return ClusterSummary(**(values | changes))


def progress(**changes: Any) -> DrainProgress:
    """Two of five workloads have left; one of the others cannot."""
    values: dict[str, Any] = {
        "moved": 2,
        "remaining": 3,
        "moving": 1,
        "blocked": (DrainBlocker("big", "cpu", "0/1 nodes: 1 cpu"),),
        "deadline_at": NOW,
    }
    return DrainProgress(**(values | changes))


@define
class FakeScheduler:
    """All its protocols at once; remembers what it was asked and raises what it is told to."""

    asked: list[Any] = field(factory=list)
    error: BaseException | None = None
    hold: asyncio.Event | None = None
    known_node: bool = True
    accepted: bool = True
    nodes_shown: list[NodeView] = field(factory=lambda: [node_view()])
    workloads_shown: list[WorkloadView] = field(factory=lambda: [workload_view()])
    summary_shown: ClusterSummary = field(factory=summary)
    fresh: Freshness = FRESH
    progress_shown: DrainProgress = field(factory=progress)
    removal_shown: NodeRemoval = NodeRemoval(True)
    import_shown: ImportAnswer = ImportAnswer((), (), {}, False, OperatingMode.NORMAL)
    replaced_intent: OperatorIntent | None = None
    volumes_shown: list[VolumeView] = field(factory=lambda: [volume_view()])
    release_shown: VolumeRelease = field(factory=lambda: VolumeRelease(True, True, volume_view()))
    held_there: tuple[str, ...] = ()
    holder: str = ""
    """Why a registration is refused: who has the node id."""

    @property
    def admission(self) -> FakeScheduler:
        return self

    automation = queries = nodes = recovery = volumes = admission

    async def register_node(self, request: RegisterNode) -> RegisterAnswer:
        reason = "registered" if self.accepted else "scheduler degraded/recovery mode"
        answer = RegisterAnswer(
            self.accepted,
            self.holder or reason,
            timedelta(seconds=10),
            NOW + timedelta(seconds=30),
            id_taken=bool(self.holder),
        )
        return await self._answer(request, answer)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        lease = NOW + timedelta(seconds=30)
        return await self._answer(beat, HeartbeatAnswer(True, False, lease, known=self.known_node))

    async def apply_workload(self, request: ApplyWorkload) -> ApplyAnswer:
        explanation = Explanation(Verdict.UNSCHEDULABLE, "no nodes")
        answer = ApplyAnswer(ApplyOutcomeKind.CREATED, "rev", explanation=explanation)
        return await self._answer(request, answer)

    async def delete_workload(self, workload_id: str, *, force: bool) -> DeleteAnswer:
        return await self._answer((workload_id, force), DeleteAnswer("Deleting"))

    async def retry_workload(self, workload_id: str, *, discard_local: bool = False) -> str:
        return await self._answer((workload_id, discard_local), "n1" if discard_local else "")

    async def submit(self, suggestion: AutomationSuggestion) -> AutomationDecision:
        decision = AutomationDecision(True, "accepted", "fine", str(suggestion.action), NOW)
        return await self._answer(suggestion, decision)

    async def cordon(self, change: NodeIntentChange) -> NodeView:
        return await self._answer(change, node_view(intent=OperatorIntent(cordoned=True)))

    async def uncordon(self, change: NodeIntentChange) -> NodeView:
        return await self._answer(change, node_view())

    async def drain(self, request: DrainNode) -> NodeView:
        view = node_view(intent=OperatorIntent(draining=True), replaced=self.replaced_intent)
        return await self._answer(request, view)

    async def undrain(self, change: NodeIntentChange) -> NodeView:
        return await self._answer(change, node_view())

    async def taint(self, request: NodeTaintChange) -> NodeView:
        mark = Taint(request.key, request.value, request.effect or TaintEffect.NO_SCHEDULE)
        return await self._answer(request, node_view(intent=OperatorIntent(taints=(mark,))))

    async def untaint(self, request: NodeTaintChange) -> NodeView:
        return await self._answer(request, node_view())

    async def label(self, request: NodeLabelChange) -> NodeView:
        kept = {} if request.value is None else {request.key: request.value}
        return await self._answer(request, node_view(intent=OperatorIntent(labels=kept)))

    async def remove(self, request: RemoveNode) -> NodeRemoval:
        return await self._answer(request, self.removal_shown)

    async def import_from_agents(self, order: ImportFromAgents) -> ImportAnswer:
        return await self._answer(order, evolve(self.import_shown, dry_run=order.dry_run))

    async def acknowledge_empty(self, order: AcknowledgeEmpty) -> OperatingMode:
        return await self._answer(order, OperatingMode.NORMAL)

    async def list_volumes(
        self, wanted: VolumeFilter, *, at_least: int = 0
    ) -> tuple[Sequence[VolumeView], Freshness]:
        return await self._answer((wanted, at_least), (self.volumes_shown, self.fresh))

    async def fence(self, change: NodeIntentChange) -> NodeFenced:
        view = node_view(fence=Fence(NOW, change.reason, change.actor))
        return await self._answer(change, NodeFenced(view, self.held_there))

    async def release(self, request: ReleaseVolume) -> VolumeRelease:
        return await self._answer(request, self.release_shown)

    async def progress(self, node_id: str) -> DrainProgress:
        return await self._answer(node_id, self.progress_shown)

    async def list_nodes(
        self, *, status: str = "", at_least: int = 0
    ) -> tuple[Sequence[NodeView], Freshness]:
        return await self._answer((status, at_least), (self.nodes_shown, self.fresh))

    async def get_node(self, node_id: str, *, at_least: int = 0) -> tuple[NodeView, Freshness]:
        found = [view for view in self.nodes_shown if view.node.id == node_id]
        if not found:
            raise NotFoundError("node", node_id)
        return await self._answer((node_id, at_least), (found[0], self.fresh))

    async def list_workloads(
        self, *, node_id: str = "", status: str = "", at_least: int = 0
    ) -> tuple[Sequence[WorkloadView], Freshness]:
        return await self._answer((node_id, status, at_least), (self.workloads_shown, self.fresh))

    async def get_workload(
        self, workload_id: str, *, at_least: int = 0
    ) -> tuple[WorkloadView, Freshness]:
        found = [view for view in self.workloads_shown if view.workload.id == workload_id]
        if not found:
            raise NotFoundError("workload", workload_id)
        return await self._answer((workload_id, at_least), (found[0], self.fresh))

    async def summary(self, *, at_least: int = 0) -> tuple[ClusterSummary, Freshness]:
        return await self._answer(at_least, (self.summary_shown, self.fresh))

    async def list_drifts(
        self, *, node_id: str = "", at_least: int = 0
    ) -> tuple[Sequence[DriftRecord], Freshness]:
        return await self._answer((node_id, at_least), ([DRIFT], self.fresh))

    async def explain(self, workload_id: str, *, max_examples: int = 3) -> Explanation:
        return await self._answer((workload_id, max_examples), Explanation(Verdict.PLACED, "on n1"))

    async def plan(
        self, request: ApplyWorkload, *, max_examples: int = 3, at_least: int = 0
    ) -> tuple[Plan, Freshness]:
        plan = Plan(
            outcome=ApplyOutcomeKind.UPDATED,
            revision_id="rev",
            node_id="n1",
            explanation=Explanation(Verdict.PLACED, "on n1", "n1", store_revision=42),
            changes=(SpecChange("spec.container.image", "a", "b"),),
            requested=Resources.of(cpu_millicores=500),
            expected_revision=41,
            store_revision=42,
            notes=("stays on n1",),
        )
        return await self._answer((request, max_examples, at_least), (plan, self.fresh))

    async def _answer(self, asked: Any, answer: T) -> T:
        self.asked.append(asked)
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return answer


class TellingMetrics(Metrics):
    """Metrics that a test can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = asyncio.Event()

    def request_served(self, method: str, code: int, seconds: float) -> None:
        super().request_served(method, code, seconds)
        self.counted.set()


@frozen
class Loopback:
    """A real server on a free loopback port, and a client of it."""

    scheduler: FakeScheduler
    stub: control_pb2_grpc.AgentControlAsyncStub
    channel: grpc.aio.Channel
    server: GrpcServer
    metrics: TellingMetrics
    phase: PhaseSwitch
    events: MemoryEventLog

    def served(self) -> Mapping[tuple[str, str], float]:
        """How many requests were counted, by the RPC's name and code."""
        return {
            (sample.labels["method"].rsplit("/")[-1], sample.labels["code"]): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "persys_scheduler_grpc_server_requests_total"
        }


@asynccontextmanager
async def loopback(
    scheduler: FakeScheduler | None = None,
    deadline_seconds: float = 30.0,
    traces: Traces | None = None,
) -> AsyncIterator[Loopback]:
    """Serve ``scheduler`` on a free port of this machine."""
    fake = scheduler or FakeScheduler()
    metrics, phase, events, clock = TellingMetrics(), PhaseSwitch(), MemoryEventLog(), SystemClock()
    servicer = ControlServicer(
        fake,
        events=events,
        clock=clock,
        phase=phase,
    )
    boundary = RequestBoundary(metrics, phase, clock, deadline_seconds, traces)
    server = GrpcServer(servicer, boundary)
    await server.start("127.0.0.1", 0)
    phase.serve()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")
    try:
        stub = agent_control_stub(channel)
        yield Loopback(fake, stub, channel, server, metrics, phase, events)
    finally:
        phase.stop()
        await channel.close()
        await server.stop(0)

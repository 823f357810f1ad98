"""What a transport calls: the use cases of one scheduler replica, as protocols.

``persys_core.control.scheduler.Scheduler`` implements them; a transport (gRPC, HTTP, a test)
depends on these alone. All of them may raise the errors of ``model.errors`` and
``StoreUnavailableError``; no other exception means anything but a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from persys_core.control.answers import (
    ApplyAnswer,
    AutomationDecision,
    ClusterSummary,
    DeleteAnswer,
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
from persys_core.model.drift import DriftRecord
from persys_core.model.ids import NodeId, StoreRevision, WorkloadId
from persys_core.model.states import OperatingMode
from persys_core.placement.explain import Explanation

__all__ = [
    "AdmissionApi",
    "AutomationApi",
    "NodeOperationsApi",
    "QueriesApi",
    "RecoveryApi",
    "VolumesApi",
]


class AdmissionApi(Protocol):
    """Agents present themselves, users state wishes. Every mutation is a compare-and-swap."""

    async def register_node(self, request: RegisterNode) -> RegisterAnswer:
        """Add or renew a node. Frozen: answered with ``accepted=False``, not an error."""
        ...

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """A node is alive and says what it runs. Frozen: acknowledged, nothing written."""
        ...

    async def apply_workload(self, request: ApplyWorkload) -> ApplyAnswer:
        """Store a wish and place it if possible. FrozenError, NotFoundError, InvalidInputError,
        RefusedError (the workload is being deleted, or is not at the expected revision)."""
        ...

    async def delete_workload(self, workload_id: WorkloadId, *, force: bool) -> DeleteAnswer:
        """Begin a deletion; ``force`` also drops what a dead node still owes."""
        ...

    async def retry_workload(
        self, workload_id: WorkloadId, *, discard_local: bool = False
    ) -> NodeId:
        """Forget old failures and try again now; NotFoundError.

        ``discard_local`` also gives up the local data that ties it to a node, so that it may start
        elsewhere without; RefusedError where there is none, or where that node is in service. The
        node whose data was given up is answered, or nothing.
        """
        ...


class AutomationApi(Protocol):
    """What policies suggest."""

    async def submit(self, suggestion: AutomationSuggestion) -> AutomationDecision:
        """Carry out a suggestion once, or reject it with a reason; a repeated one is answered with
        the first decision. Frozen: rejected, not an error. InvalidInputError."""
        ...


class NodeOperationsApi(Protocol):
    """What operators do to nodes."""

    async def cordon(self, change: NodeIntentChange) -> NodeView:
        """Let no new work come to the node."""
        ...

    async def uncordon(self, change: NodeIntentChange) -> NodeView:
        """Let work come again."""
        ...

    async def drain(self, request: DrainNode) -> NodeView:
        """Have everything leave the node; ``progress`` says how far it is, ``replaced`` in the
        answer which earlier order does not hold any more."""
        ...

    async def undrain(self, change: NodeIntentChange) -> NodeView:
        """End a drain and a cordon."""
        ...

    async def taint(self, request: NodeTaintChange) -> NodeView:
        """Mark the node; NoExecute moves what does not tolerate it."""
        ...

    async def untaint(self, request: NodeTaintChange) -> NodeView:
        """Take marks away."""
        ...

    async def label(self, request: NodeLabelChange) -> NodeView:
        """Set or take away an operator's label; RefusedError for a label of the agent."""
        ...

    async def remove(self, request: RemoveNode) -> NodeRemoval:
        """Forget the node, unless work holds it there and ``force`` is not set; NotFoundError."""
        ...

    async def progress(self, node_id: NodeId) -> DrainProgress:
        """What left a node, what remains and what cannot leave, and why; NotFoundError."""
        ...


class RecoveryApi(Protocol):
    """How an operator leads the cluster out of recovery. One order at a time: RefusedError."""

    async def import_from_agents(self, order: ImportFromAgents) -> ImportAnswer:
        """Rebuild records from what agents run. In recovery this ends it once every known node
        gave its list; in normal mode it takes what is older than the records. NotFoundError for a
        node that is not known, RefusedError where none is, FrozenError while degraded."""
        ...

    async def acknowledge_empty(self, order: AcknowledgeEmpty) -> OperatingMode:
        """Take the store as it is and end recovery; the mode afterwards. RefusedError in normal
        mode, FrozenError while degraded."""
        ...


class VolumesApi(Protocol):
    """Volumes, who holds them, and what an operator answers for."""

    async def list_volumes(
        self, wanted: VolumeFilter, *, at_least: StoreRevision = 0
    ) -> tuple[Sequence[VolumeView], Freshness]:
        """Every volume that is known, sorted by id."""
        ...

    async def fence(self, change: NodeIntentChange) -> NodeFenced:
        """Record that a silent node is cut off; NotFoundError, RefusedError while it beats. The
        word is over as soon as the node is heard again."""
        ...

    async def release(self, request: ReleaseVolume) -> VolumeRelease:
        """Give up the record of a volume that nothing uses; NotFoundError. With force, of one in
        use, the claim of its holder on a silent node: who forces this answers for it that the
        holder writes no more, until its node is heard again. RefusedError while the node beats.
        Not accepted otherwise. Data is never touched."""
        ...


class QueriesApi(Protocol):
    """Reads from this replica's view; a miss reads through to the store before NotFoundError.

    ``at_least`` waits until the view has reached that store revision (monotonic reads).
    """

    async def list_nodes(
        self, *, status: str = "", at_least: StoreRevision = 0
    ) -> tuple[Sequence[NodeView], Freshness]:
        """Nodes sorted by id, with status ``status`` (any case) where given."""
        ...

    async def get_node(
        self, node_id: NodeId, *, at_least: StoreRevision = 0
    ) -> tuple[NodeView, Freshness]:
        """One node; NotFoundError."""
        ...

    async def list_workloads(
        self, *, node_id: NodeId = "", status: str = "", at_least: StoreRevision = 0
    ) -> tuple[Sequence[WorkloadView], Freshness]:
        """Workloads sorted by id; both filters optional."""
        ...

    async def get_workload(
        self, workload_id: WorkloadId, *, at_least: StoreRevision = 0
    ) -> tuple[WorkloadView, Freshness]:
        """One workload; NotFoundError."""
        ...

    async def summary(self, *, at_least: StoreRevision = 0) -> tuple[ClusterSummary, Freshness]:
        """Counts per state, mode and leader."""
        ...

    async def list_drifts(
        self, *, node_id: NodeId = "", at_least: StoreRevision = 0
    ) -> tuple[Sequence[DriftRecord], Freshness]:
        """The drifts that stand, sorted by node, workload and type; the filter is optional, and
        NotFoundError where it names no node."""
        ...

    async def explain(self, workload_id: WorkloadId, *, max_examples: int = 3) -> Explanation:
        """Why the workload stands where it stands, and what happens next; NotFoundError."""
        ...

    async def plan(
        self, request: ApplyWorkload, *, max_examples: int = 3, at_least: StoreRevision = 0
    ) -> tuple[Plan, Freshness]:
        """What ``apply_workload`` would do with ``request`` now. Stores nothing, and raises what
        the apply would raise."""
        ...

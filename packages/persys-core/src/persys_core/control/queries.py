"""Queries: reads from this replica's view. They never write, and never wait for an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from persys_core.control.answers import ClusterSummary, Freshness, NodeView, Plan, WorkloadView
from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.explaining import Explaining
from persys_core.control.mode_supervisor import ModeSupervisor
from persys_core.control.node_views import NodeViews
from persys_core.control.planning import Planning
from persys_core.control.reads import Reads
from persys_core.control.requests import ApplyWorkload
from persys_core.control.standing import Standing
from persys_core.control.view import ClusterView
from persys_core.model.drift import DriftRecord
from persys_core.model.errors import NotFoundError
from persys_core.model.ids import NodeId, StoreRevision, WorkloadId
from persys_core.model.remarks import Remark, remark_of
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import Reason, StatusRecord, Workload
from persys_core.placement.explain import Explanation
from persys_core.ports.cluster_store import Key, Kind
from persys_core.reconcile.transitions import created

__all__ = ["Queries"]


@frozen
class Queries:
    """Implements ``control.api.QueriesApi``."""

    _view: ClusterView
    _reads: Reads
    _node_views: NodeViews
    _explaining: Explaining
    _planning: Planning
    _modes: ModeSupervisor
    _ports: SchedulerPorts
    _config: SchedulerConfig
    _standing: Callable[[], Standing]
    _alarms: Callable[[], Sequence[str]]

    async def list_nodes(
        self, *, status: str = "", at_least: StoreRevision = 0
    ) -> tuple[Sequence[NodeView], Freshness]:
        """Nodes sorted by id."""
        freshness = await self._fresh(at_least)
        views = [self._node_views.of(node) for node in sorted(self._view.all(Kind.NODE))]
        wanted = status.lower()
        return [view for view in views if wanted in ("", view.status.lower())], freshness

    async def get_node(
        self, node_id: NodeId, *, at_least: StoreRevision = 0
    ) -> tuple[NodeView, Freshness]:
        """One node."""
        freshness = await self._fresh(at_least)
        await self._reads.through(Key.node(node_id), Key.allocation(node_id))
        return self._node_views.of(node_id), freshness

    async def list_workloads(
        self, *, node_id: NodeId = "", status: str = "", at_least: StoreRevision = 0
    ) -> tuple[Sequence[WorkloadView], Freshness]:
        """Workloads sorted by id."""
        freshness = await self._fresh(at_least)
        ids = sorted(self._view.assigned_to(node_id) if node_id else self._view.all(Kind.WORKLOAD))
        views = [self._workload(id_) for id_ in ids if self._view.workload(id_) is not None]
        wanted = status.lower()
        return [view for view in views if wanted in ("", view.status.status.lower())], freshness

    async def get_workload(
        self, workload_id: WorkloadId, *, at_least: StoreRevision = 0
    ) -> tuple[WorkloadView, Freshness]:
        """One workload."""
        freshness = await self._fresh(at_least)
        await self._reads.through(
            Key.workload(workload_id), Key.status(workload_id), Key.assignment(workload_id)
        )
        return self._workload(workload_id), freshness

    async def summary(self, *, at_least: StoreRevision = 0) -> tuple[ClusterSummary, Freshness]:
        """Counts per state, mode and leader."""
        freshness = await self._fresh(at_least)
        state = self._modes.state
        standing = self._standing()
        return ClusterSummary(
            nodes_by_status=Counter(
                self._node_views.health(node).status for node in self._view.all(Kind.NODE)
            ),
            workloads_by_status=self._statuses(),
            deleted_workloads=self._deleted(),
            workloads_by_desired_state=self._desired_states(),
            totals=self._node_views.totals(),
            mode=state.mode,
            mode_reason=state.reason,
            instance_id=standing.instance_id,
            leader_id=standing.leader_id,
            is_leader=standing.leader_id == standing.instance_id,
            generated_at=self._ports.clock.now(),
            standing=standing,
            problems=(*self._view.quarantined, *self._alarms()),
        ), freshness

    async def list_drifts(
        self, *, node_id: NodeId = "", at_least: StoreRevision = 0
    ) -> tuple[Sequence[DriftRecord], Freshness]:
        """The drifts that stand, sorted by node, workload and type; NotFoundError for a node that
        is not known."""
        freshness = await self._fresh(at_least)
        if node_id:
            await self._reads.through(Key.node(node_id))
        found = [
            each
            for each in self._view.values(Kind.DRIFT, DriftRecord)
            if not each.resolved and node_id in ("", each.node_id)
        ]
        if node_id and not found and self._view.node(node_id) is None:
            raise NotFoundError("node", node_id)
        found.sort(key=lambda each: (each.node_id, each.workload_id, each.drift_type))
        return found, freshness

    async def explain(self, workload_id: WorkloadId, *, max_examples: int = 3) -> Explanation:
        """Why a workload stands where it stands."""
        await self._reads.through(
            Key.workload(workload_id), Key.status(workload_id), Key.assignment(workload_id)
        )
        view = self._workload(workload_id)
        return self._explaining.explain(view.workload, view.status, view.assignment, max_examples)

    async def plan(
        self, request: ApplyWorkload, *, max_examples: int = 3, at_least: StoreRevision = 0
    ) -> tuple[Plan, Freshness]:
        """What an apply would do now; refused while an apply would be."""
        self._modes.require_writable()
        freshness = await self._fresh(at_least)
        await self._reads.before_apply(request.workload_id, request.expected_revision)
        return self._planning.plan(request, max_examples), freshness

    async def _fresh(self, at_least: StoreRevision) -> Freshness:
        await self._reads.reach(at_least, self._config.api_timeout)
        return self._reads.freshness()

    def _workload(self, workload_id: WorkloadId) -> WorkloadView:
        stored = self._view.workload(workload_id)
        if stored is None:
            raise NotFoundError("workload", workload_id)
        assignment = self._view.assignment(workload_id)
        status = self._status(stored.value)
        status = _as_imported(stored.value, status)
        if assignment is not None:
            status = self._as_seen(stored.value, status, assignment.value.node_id)
        return WorkloadView(
            workload=stored.value,
            status=status,
            assignment=assignment.value if assignment else None,
            usage=self._ports.telemetry.workload_usage(workload_id),
            max_attempts=self._config.retry.max_attempts,
        )

    def _status(self, workload: Workload) -> StatusRecord:
        stored = self._view.status(workload.id)
        return stored.value if stored else created(workload, workload.created_at)

    def _as_seen(self, workload: Workload, status: StatusRecord, node_id: NodeId) -> StatusRecord:
        """With the reason that its node, or the runtime there, is silent, which is not worth a
        write per workload, else that it runs and is not well."""
        if status.reason is not None:
            return status
        if self._node_views.is_heard(node_id):
            return self._unseen(workload, status, node_id) or _with_remark(status)
        reason = self._node_views.health(node_id).reason
        since = self._ports.liveness.expired_since(node_id) or status.updated_at
        return evolve(
            status, reason=Reason("node_not_ready", f"node {node_id}: {reason}", since=since)
        )

    def _unseen(
        self, workload: Workload, status: StatusRecord, node_id: NodeId
    ) -> StatusRecord | None:
        """Where it runs on a node that offers its type no more: an agent whose runtime does not
        answer says so by that."""
        node, kind = self._view.node(node_id), workload.spec.type
        runs = status.status is WorkloadStatus.RUNNING and workload.imported is None
        if node is None or not runs or kind in node.value.workload_types:
            return None
        text = (
            f"node {node_id} offers no {kind} now, so its runtime does not answer; what it runs"
            " goes on unseen"
        )
        return evolve(status, reason=Reason("runtime_silent", text, since=status.updated_at))

    def _statuses(self) -> dict[str, int]:
        counts: Counter[WorkloadStatus] = Counter()
        for workload_id in self._view.all(Kind.WORKLOAD):
            stored = self._view.status(workload_id)
            counts[stored.value.status if stored else WorkloadStatus.UNKNOWN] += 1
        return {status.value: count for status, count in counts.items()}

    def _desired_states(self) -> dict[str, int]:
        counts = Counter(
            workload.desired_state for workload in self._view.values(Kind.WORKLOAD, Workload)
        )
        return {state.value: count for state, count in counts.items()}

    def _deleted(self) -> int:
        return sum(
            workload.desired_state is DesiredState.DELETED
            for workload in self._view.values(Kind.WORKLOAD, Workload)
        )


def _with_remark(status: StatusRecord) -> StatusRecord:
    """With what its agent last remarked of a workload that runs, as the reason."""
    observed = status.observed
    remark = remark_of(observed.message)
    if remark is Remark.NONE or status.status is not WorkloadStatus.RUNNING:
        return status
    since = observed.at or status.updated_at
    return evolve(status, reason=Reason(remark.value, observed.message, since=since))


def _as_imported(workload: Workload, status: StatusRecord) -> StatusRecord:
    """With the reason that only its spec is missing, where nothing worse is to be said."""
    if workload.imported is None or status.reason is not None:
        return status
    text = f"imported from {workload.imported.node_id}; apply its spec to complete it"
    return evolve(status, reason=Reason("imported", text, since=workload.imported.at))

"""The admission API as transports see it; see ``control.api`` for what it promises."""

from __future__ import annotations

from attrs import frozen

from persys_core.control.admission_nodes import NodeAdmission
from persys_core.control.admission_workloads import WorkloadAdmission
from persys_core.control.answers import (
    ApplyAnswer,
    DeleteAnswer,
    HeartbeatAnswer,
    RegisterAnswer,
)
from persys_core.control.requests import ApplyWorkload, Heartbeat, RegisterNode
from persys_core.model.ids import NodeId, WorkloadId

__all__ = ["Admission"]


@frozen
class Admission:
    """Implements ``control.api.AdmissionApi``."""

    _nodes: NodeAdmission
    _workloads: WorkloadAdmission

    async def register_node(self, request: RegisterNode) -> RegisterAnswer:
        """Add or renew a node."""
        return await self._nodes.register(request)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """A node is alive and says what it runs."""
        return await self._nodes.heartbeat(beat)

    async def apply_workload(self, request: ApplyWorkload) -> ApplyAnswer:
        """Store a wish and place it if possible."""
        return await self._workloads.apply(request)

    async def delete_workload(self, workload_id: WorkloadId, *, force: bool) -> DeleteAnswer:
        """Begin a deletion."""
        return await self._workloads.delete(workload_id, force=force)

    async def retry_workload(
        self, workload_id: WorkloadId, *, discard_local: bool = False
    ) -> NodeId:
        """Forget old failures and try again now."""
        return await self._workloads.retry(workload_id, discard_local=discard_local)

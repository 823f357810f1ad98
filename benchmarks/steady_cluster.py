"""A large cluster in which nothing is to be done, built without living through its past.

Decided here: what its records look like, and what its agents answer: that everything runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from attrs import frozen

from persys_core.memory.cluster_store import MemoryClusterBackend
from persys_core.model.cluster import ClusterMarker, LedgerState, MarkerState
from persys_core.model.ids import NodeId
from persys_core.model.node import Node, StoragePool, capacity_of
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec, spec_revision
from persys_core.model.states import DesiredState, ObservedState, WorkloadStatus, WorkloadType
from persys_core.model.workload import Allocation, Assignment, Observed, StatusRecord, Workload
from persys_core.ports.cluster_store import Key, Record, Snapshot, Versioned

__all__ = ["STARTED_AT", "Size", "build", "node_id", "reports_of"]

STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_REVISION = 1
_SPEC = WorkloadSpec(
    WorkloadType.CONTAINER,
    Resources.of(cpu_millicores=100, memory_mb=128),
    ContainerSpec("nginx:1.27", env={"PORT": "8080"}),
    {"app": "shop"},
)
_SPEC_REVISION = spec_revision(_SPEC)
_POOLS = (StoragePool("root", "local", 500),)


@frozen
class Size:
    """How many nodes, and how many workloads run on each of them."""

    nodes: int
    per_node: int

    @property
    def workloads(self) -> int:
        """All of them."""
        return self.nodes * self.per_node


def build(size: Size, endpoints: Sequence[str] = ()) -> MemoryClusterBackend:
    """The store of such a cluster; ``endpoints`` of the agents in the order of the nodes."""
    backend = MemoryClusterBackend()
    records = {
        key: Versioned(value, _REVISION, _REVISION) for key, value in _records(size, endpoints)
    }
    backend.restore(Snapshot(_REVISION, records))
    return backend


def node_id(number: int) -> NodeId:
    """The name of a node."""
    return f"node-{number:05d}"


def reports_of(number: int, per_node: int) -> tuple[AgentReport, ...]:
    """What the agent of node ``number`` lists."""
    return tuple(
        AgentReport(
            workload_id,
            AgentState.RUNNING,
            _SPEC_REVISION,
            WorkloadType.CONTAINER,
            DesiredState.RUNNING,
            "running",
            reported_at=STARTED_AT,
            metadata={"container.state": "running"},
        )
        for workload_id in _workload_ids(number, per_node)
    )


def _workload_ids(number: int, per_node: int) -> Iterator[str]:
    return (f"workload-{number:05d}-{each:02d}" for each in range(per_node))


def _records(size: Size, endpoints: Sequence[str]) -> Iterator[tuple[Key, Record]]:
    yield Key.marker(), ClusterMarker("bench", STARTED_AT, MarkerState.ACTIVE)
    yield Key.ledger(), LedgerState(ready=True, built_at=STARTED_AT)
    for number in range(size.nodes):
        yield from _node(number, size, endpoints[number] if endpoints else f"10.0.0.1:{number}")
        for workload_id in _workload_ids(number, size.per_node):
            yield from _workload(workload_id, node_id(number))


def _node(number: int, size: Size, endpoint: str) -> Iterator[tuple[Key, Record]]:
    name = node_id(number)
    yield (
        Key.node(name),
        Node(
            name,
            capacity_of(32_000, 65_536, _POOLS),
            endpoint,
            frozenset({WorkloadType.CONTAINER}),
            STARTED_AT,
            storage_pools=_POOLS,
            agent_labels={"zone": "abc"[number % 3]},
            listed_under=_REVISION,
        ),
    )
    charged = Resources({name: amount * size.per_node for name, amount in _SPEC.resources})
    yield Key.allocation(name), Allocation(name, charged, size.per_node)


def _workload(workload_id: str, where: NodeId) -> Iterator[tuple[Key, Record]]:
    uid = f"{hash(workload_id) & 0xFFFFFFFF:08x}"
    yield (
        Key.workload(workload_id),
        Workload(
            workload_id, uid, _SPEC, _SPEC_REVISION, DesiredState.RUNNING, STARTED_AT, STARTED_AT
        ),
    )
    yield (
        Key.status(workload_id),
        StatusRecord(
            workload_id,
            uid,
            WorkloadStatus.RUNNING,
            STARTED_AT,
            Observed(ObservedState.RUNNING, _SPEC_REVISION, where, STARTED_AT, "running"),
            last_action="apply_running",
            settled_since=STARTED_AT,
        ),
    )
    yield (
        Key.assignment(workload_id),
        Assignment(
            workload_id, uid, where, _SPEC.resources, "selected by placement score", STARTED_AT
        ),
    )

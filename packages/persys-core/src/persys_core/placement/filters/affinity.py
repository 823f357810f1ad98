"""Workloads that must not share a node."""

from __future__ import annotations

from attrs import frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.placement.columns import IntArray, Mask
from persys_core.placement.explain import ReasonCode
from persys_core.placement.filters.base import NodeSet
from persys_core.placement.fleet import Fleet
from persys_core.placement.labels import Label
from persys_core.placement.request import PlacementRequest

__all__ = ["AntiAffinityFilter"]


@frozen
class AntiAffinityFilter:
    """Turns nodes away that run *another* workload with one of the labels."""

    labels: tuple[Label, ...]
    workload_id: WorkloadId

    @classmethod
    def prepare(cls, request: PlacementRequest) -> AntiAffinityFilter | None:
        labels = request.constraints.anti_affinity
        return cls(tuple(sorted(labels.items())), request.workload_id) if labels else None

    @property
    def code(self) -> ReasonCode:
        return ReasonCode.ANTI_AFFINITY

    def rejected(self, nodes: NodeSet) -> Mask:
        running: set[NodeId] = set()
        for label in self.labels:
            running.update(nodes.fleet.labels.nodes_running(label, self.workload_id))
        return nodes.named(running)

    def detail(self, fleet: Fleet, row: int) -> str:
        node_id = fleet.table.ids[row]
        return ", ".join(
            f"{key}={value}"
            for key, value in self.labels
            if node_id in fleet.labels.nodes_running((key, value), self.workload_id)
        )

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.labels)

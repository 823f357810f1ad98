"""Single nodes that are ruled out, or ruled in, by name."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from persys_core.model.ids import NodeId
from persys_core.placement.columns import IntArray, Mask
from persys_core.placement.explain import ReasonCode
from persys_core.placement.filters.base import NodeSet
from persys_core.placement.fleet import Fleet
from persys_core.placement.request import PlacementRequest

__all__ = ["ExclusionFilter", "LocalDataFilter", "TombstoneFilter"]


@frozen
class ExclusionFilter:
    """Turns the named nodes away."""

    node_ids: frozenset[NodeId]

    @classmethod
    def prepare(cls, node_ids: Collection[NodeId]) -> ExclusionFilter | None:
        return cls(frozenset(node_ids)) if node_ids else None

    @property
    def code(self) -> ReasonCode:
        return ReasonCode.EXCLUDED

    def rejected(self, nodes: NodeSet) -> Mask:
        return nodes.named(self.node_ids)

    def detail(self, fleet: Fleet, row: int) -> str:
        return ""

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        return ""


@frozen
class LocalDataFilter:
    """Turns every node away but the one that holds the workload's local data (S03)."""

    node_id: NodeId

    @classmethod
    def prepare(cls, request: PlacementRequest) -> LocalDataFilter | None:
        return cls(request.pinned_to) if request.pinned_to else None

    @property
    def code(self) -> ReasonCode:
        return ReasonCode.LOCAL_DATA

    def rejected(self, nodes: NodeSet) -> Mask:
        return ~nodes.named((self.node_id,))

    def detail(self, fleet: Fleet, row: int) -> str:
        return self._text(fleet)

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        return self._text(fleet)

    def _text(self, fleet: Fleet) -> str:
        text = f"local volume data is on {self.node_id}"
        if fleet.node(self.node_id) is None:
            return f"{text} (not registered)"
        return text if fleet.is_alive(self.node_id) else f"{text} (NotReady)"


@frozen
class TombstoneFilter:
    """Turns nodes away that still owe the deletion of an earlier copy of the workload."""

    node_ids: frozenset[NodeId]

    @classmethod
    def prepare(cls, request: PlacementRequest, fleet: Fleet) -> TombstoneFilter | None:
        owing = fleet.tombstones_of(request.workload_id)
        return cls(owing) if owing else None

    @property
    def code(self) -> ReasonCode:
        return ReasonCode.TOMBSTONE

    def rejected(self, nodes: NodeSet) -> Mask:
        return nodes.named(self.node_ids)

    def detail(self, fleet: Fleet, row: int) -> str:
        return "deletion of an earlier copy is not confirmed"

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        return "deletion of an earlier copy is not confirmed"

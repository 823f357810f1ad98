"""Node labels that a workload insists on."""

from __future__ import annotations

from attrs import frozen

from persys_core.placement.columns import IntArray, Mask
from persys_core.placement.explain import ReasonCode
from persys_core.placement.filters.base import NodeSet
from persys_core.placement.fleet import Fleet
from persys_core.placement.labels import Label
from persys_core.placement.request import PlacementRequest

__all__ = ["SelectorFilter"]


@frozen
class SelectorFilter:
    """Turns nodes away that lack one of the labels, or have another value of it."""

    wanted: tuple[Label, ...]

    @classmethod
    def prepare(cls, request: PlacementRequest) -> SelectorFilter | None:
        selector = request.constraints.node_selector
        return cls(tuple(sorted(selector.items()))) if selector else None

    @property
    def code(self) -> ReasonCode:
        return ReasonCode.SELECTOR

    def rejected(self, nodes: NodeSet) -> Mask:
        lacking = nodes.none()
        for key, value in self.wanted:
            lacking |= ~nodes.having(f"label:{key}", value)
        return lacking

    def detail(self, fleet: Fleet, row: int) -> str:
        labels = fleet.table.numbers(row).node.labels
        return ", ".join(
            f"{key}={value} ({_found(labels, key)})"
            for key, value in self.wanted
            if labels.get(key) != value
        )

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        return ",".join(f"{key}={value}" for key, value in self.wanted)


def _found(labels: dict[str, str], key: str) -> str:
    return f"node has {labels[key]}" if key in labels else "node has no such label"

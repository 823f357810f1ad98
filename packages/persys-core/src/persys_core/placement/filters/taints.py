"""Taints and tolerations: NoSchedule and NoExecute turn away, PreferNoSchedule only deters."""

from __future__ import annotations

from collections import Counter

from attrs import frozen

from persys_core.model.constraints import Toleration
from persys_core.model.node import Taint
from persys_core.model.states import TaintEffect
from persys_core.placement.columns import IntArray, Mask
from persys_core.placement.explain import ReasonCode
from persys_core.placement.filters.base import NodeSet
from persys_core.placement.fleet import Fleet
from persys_core.placement.request import PlacementRequest

__all__ = ["TaintFilter", "tolerates"]

_SHOWN = 3


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Same key; and the same value and effect, where the toleration names them."""
    return (
        toleration.key == taint.key
        and toleration.value in (None, taint.value)
        and toleration.effect in (None, taint.effect)
    )


@frozen
class TaintFilter:
    """Turns nodes away for taints that the workload does not tolerate."""

    tolerations: tuple[Toleration, ...]

    @classmethod
    def prepare(cls, request: PlacementRequest) -> TaintFilter:
        """It applies to every workload: one without tolerations tolerates nothing."""
        return cls(request.constraints.tolerations)

    @property
    def code(self) -> ReasonCode:
        return ReasonCode.TAINT

    def rejected(self, nodes: NodeSet) -> Mask:
        return self._bearing(nodes, deterring=False)

    def deterred(self, nodes: NodeSet) -> Mask:
        """The nodes that are better left alone, but may be used."""
        return self._bearing(nodes, deterring=True)

    def detail(self, fleet: Fleet, row: int) -> str:
        return ", ".join(sorted(map(str, self._blocking_on(fleet, row))))

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        """The most frequent taints, the most frequent first."""
        counts = Counter(
            str(taint) for row in rows.tolist() for taint in self._blocking_on(fleet, row)
        )
        return ", ".join(sorted(counts, key=lambda text: (-counts[text], text))[:_SHOWN])

    def _bearing(self, nodes: NodeSet, *, deterring: bool) -> Mask:
        bearing = nodes.none()
        for taint in nodes.fleet.properties.values("taint"):
            if isinstance(taint, Taint) and self._minds(taint, deterring=deterring):
                bearing |= nodes.having("taint", taint)
        return bearing

    def _minds(self, taint: Taint, *, deterring: bool) -> bool:
        if deterring is not (taint.effect is TaintEffect.PREFER_NO_SCHEDULE):
            return False
        return not any(tolerates(toleration, taint) for toleration in self.tolerations)

    def _blocking_on(self, fleet: Fleet, row: int) -> list[Taint]:
        taints = fleet.table.numbers(row).node.intent.taints
        return [taint for taint in taints if self._minds(taint, deterring=False)]

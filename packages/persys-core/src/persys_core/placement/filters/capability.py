"""What a node must be able to do: run the workload's type, serve its storage drivers."""

from __future__ import annotations

from attrs import frozen

from persys_core.model.states import WorkloadType
from persys_core.placement.columns import IntArray, Mask
from persys_core.placement.explain import ReasonCode
from persys_core.placement.filters.base import NodeSet
from persys_core.placement.fleet import Fleet
from persys_core.placement.request import PlacementRequest

__all__ = ["DriverFilter", "TypeFilter"]


@frozen
class TypeFilter:
    """Turns nodes away that cannot run the type.

    A microVM may also go to a node that advertises ``vm`` only: to such nodes it is sent as a
    VM with Firecracker as its runtime (decisions, values: workload types).
    """

    type: WorkloadType

    @classmethod
    def prepare(cls, request: PlacementRequest) -> TypeFilter:
        return cls(request.type)

    @property
    def code(self) -> ReasonCode:
        return ReasonCode.WORKLOAD_TYPE

    def rejected(self, nodes: NodeSet) -> Mask:
        able = nodes.having("type", self.type)
        if self.type is WorkloadType.MICROVM:
            able |= nodes.having("type", WorkloadType.VM)
        return ~able

    def detail(self, fleet: Fleet, row: int) -> str:
        kinds = sorted(fleet.table.numbers(row).node.workload_types)
        return f"{self.type} (node runs {', '.join(kinds) or 'none'})"

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        return self.type.value


@frozen
class DriverFilter:
    """Turns nodes away that lack a storage driver."""

    needed: tuple[str, ...]

    @classmethod
    def prepare(cls, request: PlacementRequest) -> DriverFilter | None:
        return cls(tuple(sorted(request.drivers))) if request.drivers else None

    @property
    def code(self) -> ReasonCode:
        return ReasonCode.STORAGE_DRIVER

    def rejected(self, nodes: NodeSet) -> Mask:
        lacking = nodes.none()
        for name in self.needed:
            lacking |= ~nodes.having("driver", name)
        return lacking

    def detail(self, fleet: Fleet, row: int) -> str:
        served = {str(value) for name, value in fleet.properties.of(row) if name == "driver"}
        missing = ", ".join(name for name in self.needed if name not in served)
        return f"{missing} (node serves {', '.join(sorted(served))})"

    def summary(self, fleet: Fleet, rows: IntArray) -> str:
        return ", ".join(self.needed)

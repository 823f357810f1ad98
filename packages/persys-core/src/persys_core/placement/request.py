"""What placement needs to know of a workload, and nothing else of it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from persys_core.model.constraints import PlacementConstraints, parse_constraints
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.mappings import text_map
from persys_core.model.resources import Resources
from persys_core.model.states import WorkloadType
from persys_core.model.workload import Workload
from persys_core.placement.demand import demand_of, drivers_of, in_checking_order, pool_wishes

__all__ = ["Credit", "PlacementRequest"]

Credit = tuple[NodeId, Resources]
"""A node, and what the workload is charged with there already."""


@frozen
class PlacementRequest:
    """One workload that looks for a node.

    ``demand`` is what it asks of any node (see the module of that name); ``charge_for`` says what
    it is on a given one. ``drivers`` are the storage drivers it needs. ``metadata`` are its
    labels, for the anti-affinity of others. ``pinned_to`` is the node that holds its local data.
    ``avoid_node`` is where it failed last: a wish, not a ban. ``credit`` is what it holds on a
    node at present: there that share counts as free, and the workload is not counted.
    """

    workload_id: WorkloadId
    type: WorkloadType
    demand: Resources
    drivers: frozenset[str] = frozenset()
    constraints: PlacementConstraints = field(factory=PlacementConstraints)
    metadata: Mapping[str, str] = field(factory=dict, converter=text_map)
    pinned_to: NodeId = ""
    avoid_node: NodeId = ""
    credit: Credit | None = None
    class_key: str = field(init=False, repr=False, eq=False)
    """Equal for requests that all the cached filters treat alike (see ``prepared``)."""
    asked: tuple[tuple[str, int], ...] = field(init=False, repr=False, eq=False)
    """The asked dimensions in checking order, without pools."""
    pools: Mapping[str, int] = field(init=False, repr=False, eq=False)
    """The GB asked per storage pool, by the name the user wrote."""

    @class_key.default
    def _class_key(self) -> str:
        wishes = self.constraints
        return repr(
            (
                self.type.value,
                sorted(self.drivers),
                sorted(wishes.node_selector.items()),
                wishes.tolerations,
                wishes.spread_by,
                sorted(wishes.exclude_nodes),
            )
        )

    @asked.default
    def _asked(self) -> tuple[tuple[str, int], ...]:
        return in_checking_order(self.demand)

    @pools.default
    def _pools(self) -> Mapping[str, int]:
        return pool_wishes(self.demand)

    @classmethod
    def of(
        cls,
        workload: Workload,
        *,
        pinned_to: NodeId = "",
        avoid_node: NodeId = "",
        credit: Credit | None = None,
    ) -> PlacementRequest:
        """The request of a stored workload.

        Raises ``InvalidInputError`` where its placement metadata is malformed (admission refuses
        such metadata, so only records of another scheduler can hold it).
        """
        spec = workload.spec
        return cls(
            workload.id,
            spec.type,
            demand_of(spec),
            drivers_of(spec),
            parse_constraints(spec.metadata),
            spec.metadata,
            pinned_to,
            avoid_node,
            credit,
        )

"""The reasons why a node cannot take a workload: one idea per filter, in checking order.

The order is that of ``ReasonCode``. The first two groups are here; the last, capacity, is in
``capacity``, since it compares numbers.
"""

from __future__ import annotations

from collections.abc import Collection

from persys_core.model.ids import NodeId
from persys_core.placement.filters.affinity import AntiAffinityFilter
from persys_core.placement.filters.base import Filter
from persys_core.placement.filters.capability import DriverFilter, TypeFilter
from persys_core.placement.filters.identity import (
    ExclusionFilter,
    LocalDataFilter,
    TombstoneFilter,
)
from persys_core.placement.filters.selector import SelectorFilter
from persys_core.placement.filters.state import STATE_FILTERS
from persys_core.placement.filters.taints import TaintFilter
from persys_core.placement.fleet import Fleet
from persys_core.placement.request import PlacementRequest

__all__ = ["class_filters", "request_filters"]


def class_filters(request: PlacementRequest) -> tuple[Filter, ...]:
    """The filters that look at properties of nodes: the same for a whole request class.

    What they look at is part of ``PlacementRequest.class_key``.
    """
    prepared = (
        *STATE_FILTERS,
        TaintFilter.prepare(request),
        SelectorFilter.prepare(request),
        TypeFilter.prepare(request),
        DriverFilter.prepare(request),
        ExclusionFilter.prepare(request.constraints.exclude_nodes),
    )
    return tuple(one for one in prepared if one is not None)


def request_filters(
    request: PlacementRequest, fleet: Fleet, excluding: Collection[NodeId]
) -> tuple[Filter, ...]:
    """The filters that look at where this very workload, and those beside it, are or were."""
    prepared = (
        ExclusionFilter.prepare(excluding),
        AntiAffinityFilter.prepare(request),
        LocalDataFilter.prepare(request),
        TombstoneFilter.prepare(request, fleet),
    )
    return tuple(one for one in prepared if one is not None)

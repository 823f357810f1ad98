"""Whether the ledger leaves room: per dimension, asked against free.

Free is allocatable less charged (``table``), never measured use. A dimension that is not asked
for turns nobody away, even where it is overcommitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from persys_core.model.resources import CPU, DISK, MEMORY
from persys_core.placement.columns import Mask
from persys_core.placement.demand import pool_charges
from persys_core.placement.explain import ReasonCode
from persys_core.placement.request import PlacementRequest
from persys_core.placement.table import Amounts, NodeTable

__all__ = ["Room", "capacity_code", "rooms"]

Room: TypeAlias = tuple[str, int, Mask]
"""A dimension, how much of it is asked, and where there is enough of it."""

_CODES = {CPU: ReasonCode.CPU, MEMORY: ReasonCode.MEMORY, DISK: ReasonCode.DISK}


def capacity_code(dimension: str) -> ReasonCode:
    """The reason code of a shortage of ``dimension``."""
    return _CODES.get(dimension, ReasonCode.RESOURCE)


def rooms(request: PlacementRequest, table: NodeTable, amounts: Amounts) -> Iterator[Room]:
    """Every asked dimension in checking order, pools last.

    A pool may come up several times, once for each meaning that the wish has on some nodes;
    all other nodes count as having enough then.
    """
    for dimension, asked in request.asked:
        yield dimension, asked, amounts.free_column(dimension).values >= asked
    if request.pools:
        yield from _pool_rooms(request, table, amounts)


def _pool_rooms(request: PlacementRequest, table: NodeTable, amounts: Amounts) -> Iterator[Room]:
    for pool_map, number in table.pool_maps.items():
        elsewhere = np.not_equal(table.pool_map_ids.values, number)
        for dimension, asked in sorted(pool_charges(request.pools, pool_map).items()):
            enough = amounts.free_column(dimension).values >= asked
            yield dimension, asked, enough | elsewhere

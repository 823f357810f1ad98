"""The nodes as columns: one row per node, one array per number that placement compares.

Decided here: what *free* and *headroom* are.

* free = allocatable - charged, per dimension, from the ledger. Measured use never enters it. It
  is negative on a node found above its capacity.
* headroom = max(0, free) / allocatable, for cpu and memory. While a report of the node's use is
  known, free is there the smaller of the ledger's and ``capacity - used - in flight``: what is
  in use includes the host's share, so the reserve is not subtracted again (P01). Use counts in
  whole sixteenths of the capacity: a measurement is never twice the same, and nodes that are alike
  must not change places from one heartbeat to the next. A node that has none of a resource has
  no headroom of it.

Which node is feasible or better is not decided here.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from hashlib import blake2b
from typing import Protocol

import numpy as np
from attrs import define, evolve, field

from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.resources import CPU, DISK, MEMORY, Resources
from persys_core.placement.columns import Column, Scalar
from persys_core.placement.demand import PoolMap, pool_map_of

__all__ = ["Amounts", "CreditedAmounts", "NodeTable", "Numbers", "stable_hash"]


_USE_STEPS = 16
"""Measured use is told apart in so many steps."""


def stable_hash(text: str) -> int:
    """64 bits that are the same in every process and release; what ties are broken with."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


@define
class Numbers:
    """The amounts of one node, by dimension; ``used`` is ``None`` where no report is known."""

    node: Node
    allocatable: Mapping[str, int]
    charged: Mapping[str, int] = field(factory=dict)
    count: int = 0
    used: Mapping[str, int] | None = None
    in_flight: Mapping[str, int] = field(factory=dict)

    def free(self, dimension: str) -> int:
        """Ledger free."""
        return self.allocatable.get(dimension, 0) - self.charged.get(dimension, 0)

    def headroom(self, dimension: str) -> float:
        """From 0 (or below capacity) to 1; see the module."""
        total = self.allocatable.get(dimension, 0)
        if total <= 0:
            return 0.0
        free = self.free(dimension)
        if self.used is not None:
            free = min(free, self._reported_free(self.used, dimension))
        return free / total if free > 0 else 0.0

    def _reported_free(self, used: Mapping[str, int], dimension: str) -> int:
        capacity = self.node.capacity.get(dimension)
        in_use = used.get(dimension, 0) * _USE_STEPS // capacity * capacity // _USE_STEPS
        return capacity - in_use - self.in_flight.get(dimension, 0)


class Amounts(Protocol):
    """The columns that a decision compares and scores with."""

    @property
    def counts(self) -> Column[np.float64]: ...
    @property
    def cpu_headroom(self) -> Column[np.float64]: ...
    @property
    def memory_headroom(self) -> Column[np.float64]: ...
    @property
    def headroom(self) -> Column[np.float64]: ...
    def free_column(self, dimension: str) -> Column[np.int64]: ...


class NodeTable:
    """Rows of nodes. A row that holds no node is used again for the next one.

    ``free`` has a column of int64 for each dimension that was ever asked for; the others are
    columns of float64, but for ``hashes`` (uint64) and ``pool_map_ids`` (int64). ``headroom`` is
    the sum of the cpu and the memory headroom. Everything is zero in a row without a node.
    """

    def __init__(self) -> None:
        self.ids: list[NodeId] = []
        self.counts = Column(np.float64)
        self.cpu_headroom = Column(np.float64)
        self.memory_headroom = Column(np.float64)
        self.headroom = Column(np.float64)
        self.hashes = Column(np.uint64)
        self.pool_map_ids = Column(np.int64)
        self.pool_maps: dict[PoolMap, int] = {}
        self.free = {dimension: Column(np.int64) for dimension in (CPU, MEMORY, DISK)}
        self._numbers: list[Numbers | None] = []
        self._rows: dict[NodeId, int] = {}
        self._spare: list[int] = []
        self._pool_map_users: dict[PoolMap, int] = {}

    def __len__(self) -> int:
        """How many nodes there are; ``len(ids)`` is how many rows."""
        return len(self._rows)

    def row_of(self, node_id: NodeId) -> int | None:
        """The row of a node, which stays the same until it is removed."""
        return self._rows.get(node_id)

    def numbers(self, row: int) -> Numbers:
        """The numbers of the node in ``row``; ``KeyError`` where there is none."""
        numbers = self._numbers[row]
        if numbers is None:
            raise KeyError(f"row {row} holds no node")
        return numbers

    def put(self, node: Node) -> int:
        """Add a node, or replace its record and keep its numbers; the row it stands in."""
        row = self._rows.get(node.id)
        if row is None:
            row = self._claim(node.id)
            numbers = Numbers(node, node.allocatable.amounts)
        else:
            numbers = self.numbers(row)
            self._leave_pool_map(numbers.node)
            numbers.node, numbers.allocatable = node, node.allocatable.amounts
        self._numbers[row] = numbers
        self._join_pool_map(row, node)
        self.write(row)
        return row

    def remove(self, node_id: NodeId) -> int | None:
        """Forget a node; the row it stood in."""
        row = self._rows.pop(node_id, None)
        if row is None:
            return None
        self._leave_pool_map(self.numbers(row).node)
        self._numbers[row] = None
        self.ids[row] = ""
        for column in self._columns():
            column.values[row] = 0
        heapq.heappush(self._spare, row)
        return row

    def write(self, row: int) -> None:
        """Bring all columns in line with the numbers of ``row``."""
        numbers = self.numbers(row)
        for dimension, column in self.free.items():
            column.values[row] = numbers.free(dimension)
        self.counts.values[row] = numbers.count
        self.write_headroom(row)

    def write_headroom(self, row: int) -> None:
        """Bring the headroom columns in line with the numbers of ``row``."""
        numbers = self.numbers(row)
        cpu, memory = numbers.headroom(CPU), numbers.headroom(MEMORY)
        self.cpu_headroom.values[row] = cpu
        self.memory_headroom.values[row] = memory
        self.headroom.values[row] = cpu + memory

    def free_column(self, dimension: str) -> Column[np.int64]:
        """The free amounts of a dimension, kept up to date from the first time it is asked for."""
        column = self.free.get(dimension)
        if column is None:
            column = self.free[dimension] = Column(np.int64, len(self.ids))
            for row in self._rows.values():
                column.values[row] = self.numbers(row).free(dimension)
        return column

    def _columns(self) -> tuple[Column[np.float64] | Column[np.int64] | Column[np.uint64], ...]:
        return (
            self.counts, self.cpu_headroom, self.memory_headroom, self.headroom,
            self.hashes, self.pool_map_ids, *self.free.values(),
        )  # fmt: skip

    def _claim(self, node_id: NodeId) -> int:
        # The lowest spare row, so that the rows in use stay together.
        row = heapq.heappop(self._spare) if self._spare else self._grow()
        self._rows[node_id] = row
        self.ids[row] = node_id
        self.hashes.values[row] = stable_hash(node_id)
        return row

    def _grow(self) -> int:
        self.ids.append("")
        self._numbers.append(None)
        for column in self._columns():
            column.grow()
        return len(self.ids) - 1

    def _join_pool_map(self, row: int, node: Node) -> None:
        meaning = pool_map_of(node.storage_pools)
        users = self._pool_map_users
        users[meaning] = users.get(meaning, 0) + 1
        if meaning not in self.pool_maps:
            taken = set(self.pool_maps.values())
            self.pool_maps[meaning] = next(n for n in range(len(taken) + 1) if n not in taken)
        self.pool_map_ids.values[row] = self.pool_maps[meaning]

    def _leave_pool_map(self, node: Node) -> None:
        meaning = pool_map_of(node.storage_pools)
        self._pool_map_users[meaning] -= 1
        if not self._pool_map_users[meaning]:
            del self._pool_map_users[meaning], self.pool_maps[meaning]


class CreditedAmounts:
    """The amounts as if one node were rid of one workload's charge, and of the workload.

    The measured use of the node is left as it is: nobody knows the workload's part of it.
    """

    def __init__(self, table: NodeTable, row: int, credit: Resources) -> None:
        known = table.numbers(row)
        names = known.charged.keys() | credit.amounts.keys()
        charged = {name: known.charged.get(name, 0) - credit.get(name) for name in names}
        numbers = evolve(known, charged=charged, count=max(0, known.count - 1))
        cpu, memory = numbers.headroom(CPU), numbers.headroom(MEMORY)
        self.counts = _with(table.counts, row, numbers.count)
        self.cpu_headroom = _with(table.cpu_headroom, row, cpu)
        self.memory_headroom = _with(table.memory_headroom, row, memory)
        self.headroom = _with(table.headroom, row, cpu + memory)
        self._table, self._row, self._numbers = table, row, numbers

    def free_column(self, dimension: str) -> Column[np.int64]:
        """The free amounts of a dimension, the credit included."""
        column = self._table.free_column(dimension)
        return _with(column, self._row, self._numbers.free(dimension))


def _with(column: Column[Scalar], row: int, value: float) -> Column[Scalar]:
    changed = column.copy()
    changed.values[row] = value
    return changed

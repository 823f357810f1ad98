"""The cluster as placement sees it: a view that is kept up to date change by change.

Each setter takes one record or observation as it is now, may be called again with the same, and
costs what changed. They may come in any order: what is said of a node that is not registered
(yet) is kept until the node comes. ``remove_node`` forgets the record, its liveness, its listing,
its measured use and what is in flight to it, so that a node that comes back must be seen anew;
the ledger, tombstones and labels are other records and end by their own setters.

Decided here: nothing but what is known. It is a view for choosing; that a choice really fits is
settled by the commit that compares the ledger (architecture §3.2).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.usage import NodeUsage
from persys_core.model.workload import Allocation
from persys_core.placement.columns import ChangeLog, Properties, Property
from persys_core.placement.demand import LOCAL_DRIVER, driver_name
from persys_core.placement.labels import LabelIndex
from persys_core.placement.table import NodeTable, Numbers

__all__ = ["USAGE_LIFETIME", "Fleet", "properties_of"]

USAGE_LIFETIME = timedelta(seconds=90)
"""A report of measured use counts while it is younger than this."""

_DRIVER_LABEL = "storage."


def properties_of(node: Node, *, alive: bool, listed: bool) -> Iterator[Property]:
    """What filters ask of a node, as (property, value); a property may have several values."""
    flags = {
        "present": True,
        "alive": alive,
        "listed": listed,
        "cordoned": node.intent.cordoned,
        "draining": node.intent.draining,
    }
    yield from ((name, True) for name, holds in flags.items() if holds)
    yield from (("taint", taint) for taint in node.intent.taints)
    yield from (("type", kind) for kind in node.workload_types)
    yield from ((f"label:{key}", value) for key, value in node.labels.items())
    yield from (("driver", name) for name in _drivers(node))


def _drivers(node: Node) -> Iterator[str]:
    yield LOCAL_DRIVER
    yield from map(driver_name, node.storage_drivers)
    for key, value in node.labels.items():
        if key.startswith(_DRIVER_LABEL) and value.strip().lower() == "true":
            yield driver_name(key.removeprefix(_DRIVER_LABEL))


class Fleet:
    """Everything that placement knows.

    Size: one setter for each kind of record or observation that may change.

    To be read by filters and strategies: ``table`` (numbers per node), ``properties`` (what
    nodes have), ``changes`` (rows whose properties changed), ``labels``. Rows are positions in
    all of them.
    """

    def __init__(self) -> None:
        self.table = NodeTable()
        self.properties = Properties()
        self.changes = ChangeLog()
        self.labels = LabelIndex()
        self._alive: set[NodeId] = set()
        self._listed: set[NodeId] = set()
        self._allocations: dict[NodeId, Allocation] = {}
        self._usage: dict[NodeId, NodeUsage] = {}
        self._usage_ends: list[tuple[datetime, NodeId]] = []
        self._in_flight: dict[NodeId, Mapping[str, int]] = {}
        self._tombstones: dict[WorkloadId, set[NodeId]] = {}

    def node(self, node_id: NodeId) -> Node | None:
        """The record of a node; ``None`` where it is not registered."""
        row = self.table.row_of(node_id)
        return None if row is None else self.table.numbers(row).node

    def label(self, row: int, key: str) -> str:
        """A label's value on the node in ``row``; empty where it, or the node, is missing."""
        node = self.node(self.table.ids[row])
        return "" if node is None else node.labels.get(key, "")

    def is_alive(self, node_id: NodeId) -> bool:
        """Whether the node's lease stands, as far as this view was told."""
        return node_id in self._alive

    def allocation(self, node_id: NodeId) -> Allocation:
        """The ledger of a node; an empty one where nothing is charged."""
        return self._allocations.get(node_id) or Allocation(node_id)

    def tombstones_of(self, workload_id: WorkloadId) -> frozenset[NodeId]:
        """The nodes that still owe the deletion of a workload."""
        return frozenset(self._tombstones.get(workload_id, ()))

    def set_node(self, node: Node) -> None:
        """A node was registered or its record changed."""
        if self.node(node.id) == node:
            return
        row = self.table.put(node)
        self._write_properties(node.id)
        self._read_measured(node.id, self.table.numbers(row))
        self.set_allocation(self.allocation(node.id))

    def remove_node(self, node_id: NodeId) -> None:
        """A node's record is gone; see the module for what else is forgotten."""
        for known in (self._alive, self._listed):
            known.discard(node_id)
        self._usage.pop(node_id, None)
        self._in_flight.pop(node_id, None)
        row = self.table.remove(node_id)
        if row is not None and self.properties.replace(row, ()):
            self.changes.note(row)

    def set_allocation(self, allocation: Allocation) -> None:
        """The ledger of a node changed; an empty one is the same as none."""
        node_id = allocation.node_id
        if allocation.workload_count or allocation.charged:
            self._allocations[node_id] = allocation
        else:
            self._allocations.pop(node_id, None)
        row = self.table.row_of(node_id)
        if row is not None:
            numbers = self.table.numbers(row)
            numbers.charged = allocation.charged.amounts
            numbers.count = allocation.workload_count
            self.table.write(row)

    def set_alive(self, node_id: NodeId, alive: bool) -> None:
        """A node's lease was renewed or ended."""
        self._set_member(self._alive, node_id, alive)

    def set_listed(self, node_id: NodeId, listed: bool) -> None:
        """Whether a full listing of the node was seen in this cluster's life."""
        self._set_member(self._listed, node_id, listed)

    def set_usage(self, usage: NodeUsage) -> None:
        """A node measured itself; an older report than the known one changes nothing."""
        node_id = usage.node_id
        known = self._usage.get(node_id)
        if known is not None and (usage == known or usage.reported_at < known.reported_at):
            return
        self._usage[node_id] = usage
        heapq.heappush(self._usage_ends, (usage.reported_at + USAGE_LIFETIME, node_id))
        self._write_measured(node_id)

    def expire_usage(self, now: datetime) -> None:
        """Forget the reports that are ``USAGE_LIFETIME`` old at ``now``."""
        while self._usage_ends and self._usage_ends[0][0] <= now:
            _, node_id = heapq.heappop(self._usage_ends)
            usage = self._usage.get(node_id)
            if usage is not None and usage.reported_at + USAGE_LIFETIME <= now:
                del self._usage[node_id]
                self._write_measured(node_id)

    def set_in_flight(self, node_id: NodeId, amounts: Mapping[str, int]) -> None:
        """What was placed on a node and its reports cannot show yet (see ``reservations``)."""
        if amounts:
            self._in_flight[node_id] = amounts
        else:
            self._in_flight.pop(node_id, None)
        if node_id in self._usage:
            self._write_measured(node_id)

    def add_tombstone(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """A node owes the deletion of a workload."""
        self._tombstones.setdefault(workload_id, set()).add(node_id)

    def remove_tombstone(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """A node owes it no longer; no error where it did not."""
        nodes = self._tombstones.get(workload_id, set())
        nodes.discard(node_id)
        if not nodes:
            self._tombstones.pop(workload_id, None)

    def place_labels(
        self, workload_id: WorkloadId, node_id: NodeId, metadata: Mapping[str, str]
    ) -> None:
        """A workload with these labels is on a node, and on no other."""
        self.labels.place(workload_id, node_id, metadata)

    def remove_labels(self, workload_id: WorkloadId) -> None:
        """A workload is on no node."""
        self.labels.remove(workload_id)

    def _set_member(self, known: set[NodeId], node_id: NodeId, member: bool) -> None:
        if member is (node_id in known):
            return
        known.symmetric_difference_update((node_id,))
        self._write_properties(node_id)

    def _write_properties(self, node_id: NodeId) -> None:
        row, node = self.table.row_of(node_id), self.node(node_id)
        if row is None or node is None:
            return
        properties = properties_of(
            node, alive=node_id in self._alive, listed=node_id in self._listed
        )
        if self.properties.replace(row, properties):
            self.changes.note(row)

    def _write_measured(self, node_id: NodeId) -> None:
        row = self.table.row_of(node_id)
        if row is not None:
            self._read_measured(node_id, self.table.numbers(row))
            self.table.write_headroom(row)

    def _read_measured(self, node_id: NodeId, numbers: Numbers) -> None:
        usage = self._usage.get(node_id)
        numbers.used = None if usage is None else usage.used.amounts
        numbers.in_flight = self._in_flight.get(node_id, {})

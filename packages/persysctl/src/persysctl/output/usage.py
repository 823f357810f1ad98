"""Tables of what workloads and nodes use.

Decided here: columns and order. What was not measured is ``-`` and stands last, whatever is sorted
by; every row says how old its measurement is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.output import words
from persysctl.output.tables import plain_table, remarked_status, status_text
from persysctl.output.words import NOTHING

__all__ = ["Order", "nodes", "sorted_nodes", "sorted_workloads", "workloads"]

_STEP = 1024
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


class Order(StrEnum):
    """What a table is sorted by: the most first, names from the first."""

    CPU = "cpu"
    MEMORY = "memory"
    NAME = "name"


# ---------------------------------------------------------------------- workloads


def sorted_workloads(views: Iterable[pb.WorkloadView], order: Order) -> list[pb.WorkloadView]:
    """The workloads that are on a node, or were measured, in order."""
    shown = (each for each in views if each.assigned_node_id or each.HasField("usage"))
    return sorted(shown, key=_WORKLOAD_KEYS[order])


_WORKLOAD_KEYS: dict[Order, Callable[[pb.WorkloadView], tuple[bool, float, str]]] = {
    Order.CPU: lambda view: (not view.HasField("usage"), -view.usage.cpu_percent, view.workload_id),
    Order.MEMORY: lambda view: (
        not view.HasField("usage"),
        -view.usage.memory_bytes,
        view.workload_id,
    ),
    Order.NAME: lambda view: (False, 0, view.workload_id),
}


def workloads(views: Sequence[pb.WorkloadView], now: datetime) -> Iterable[RenderableType]:
    """The table of workloads, or a line that none is on a node."""
    if not views:
        return [Text("no workloads on nodes")]
    headers = ("ID", "NODE", "STATUS", "CPU", "MEMORY", "NET IN/OUT", "DISK READ/WRITE", "AGE")
    rows: list[list[str | Text]] = [
        [
            view.workload_id,
            view.assigned_node_id or NOTHING,
            remarked_status(view),
            *_workload_use(view, now),
        ]
        for view in views
    ]
    return [plain_table(*headers, rows=rows)]


def _workload_use(view: pb.WorkloadView, now: datetime) -> Sequence[str]:
    if not view.HasField("usage"):
        return [NOTHING] * 5
    usage, requested = view.usage, words.amount_of(view.requested, "memory")
    memory = _size(usage.memory_bytes)
    return (
        f"{usage.cpu_percent:.1f}%",
        f"{memory} of {_size_mb(requested)}" if requested else memory,
        f"{_size(usage.net_rx_bytes)} / {_size(usage.net_tx_bytes)}",
        f"{_size(usage.disk_read_bytes)} / {_size(usage.disk_write_bytes)}",
        words.age(usage, "collected_at", now),
    )


# -------------------------------------------------------------------------- nodes


def sorted_nodes(views: Iterable[pb.NodeView], order: Order) -> list[pb.NodeView]:
    """Nodes in order."""
    return sorted(views, key=_NODE_KEYS[order])


_NODE_KEYS: dict[Order, Callable[[pb.NodeView], tuple[bool, float, str]]] = {
    Order.CPU: lambda view: (
        not view.HasField("usage"),
        -(_cpu_percent(view) or 0),
        view.node_id,
    ),
    Order.MEMORY: lambda view: (
        not view.HasField("usage"),
        -view.usage.memory_used_mb,
        view.node_id,
    ),
    Order.NAME: lambda view: (False, 0, view.node_id),
}


def nodes(views: Sequence[pb.NodeView], now: datetime) -> Iterable[RenderableType]:
    """The table of nodes, or a line that there are none."""
    if not views:
        return [Text("no nodes")]
    headers = ("ID", "STATUS", "CPU", "CORES USED", "MEMORY USED", "DISK USED", "AGE")
    rows: list[list[str | Text]] = [
        [view.node_id, status_text(view.status), *_node_use(view, now)] for view in views
    ]
    return [plain_table(*headers, rows=rows)]


def _node_use(view: pb.NodeView, now: datetime) -> Sequence[str]:
    if not view.HasField("usage"):
        return [NOTHING] * 5
    percent = _cpu_percent(view)
    disk = words.amount_of(view.capacity, "disk")
    return (
        NOTHING if percent is None else f"{percent:.1f}%",
        f"{view.usage.cpu_used_millicores / 1000:.2f} of"
        f" {words.plain_number(view.total_cpu_cores)}",
        f"{_size_mb(view.usage.memory_used_mb)} of {_size_mb(view.total_memory_mb)}",
        f"{view.usage.disk_used_gb} GB" + (f" of {disk} GB" if disk else ""),
        words.age(view, "usage_reported_at", now),
    )


def _cpu_percent(view: pb.NodeView) -> float | None:
    """Of all its cores; ``None`` where their number is not known."""
    if view.total_cpu_cores <= 0:
        return None
    return view.usage.cpu_used_millicores / 10 / view.total_cpu_cores


def _size_mb(count: int) -> str:
    return _size(count * _STEP**2)


def _size(count: float) -> str:
    """Bytes in the largest unit that leaves one before the point: ``1.5 GB``."""
    value, unit = float(count), _UNITS[0]
    for larger in _UNITS[1:]:
        if value < _STEP:
            break
        value, unit = value / _STEP, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"

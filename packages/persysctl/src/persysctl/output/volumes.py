"""The table of volumes.

Decided here: that who uses a volume, and where, counts everyone who has yet to give it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.output import words
from persysctl.output.tables import plain_table, status_text
from persysctl.output.words import NOTHING

__all__ = ["volumes_table"]


def volumes_table(
    views: Sequence[pb.VolumeView], now: datetime, *, wide: bool
) -> Iterable[RenderableType]:
    """One line per volume, or a line that there are none."""
    if not views:
        return [Text("no volumes")]
    headers = ["ID", "SIZE", "MODE", "PHASE", "USED BY", "NODES"]
    if wide:
        headers += ["DRIVER", "POLICY", "CREATED"]
    rows = [[*_cells(view, now, wide=wide), _held(view)] for view in views]
    return [plain_table(*headers, "HELD", rows=rows)]


def _cells(view: pb.VolumeView, now: datetime, *, wide: bool) -> list[str | Text]:
    disk = view.disk
    cells: list[str | Text] = [
        disk.id,
        words.amount(disk.size_gb, "GB") if disk.size_gb else NOTHING,
        disk.access_mode or NOTHING,
        status_text(disk.phase),
        _joined({*disk.workload_refs, *(held.workload_id for held in view.attachments)}),
        _joined({*disk.attached_nodes, *(held.node_id for held in view.attachments)}),
    ]
    if wide:
        cells += [
            disk.driver or NOTHING,
            disk.retain_policy or NOTHING,
            words.age(disk, "created_at", now),
        ]
    return cells


def _joined(names: set[str]) -> str:
    return ", ".join(sorted(filter(None, names))) or NOTHING


def _held(view: pb.VolumeView) -> str:
    """Why it cannot move or go away, and what is wrong with it."""
    errors = dict.fromkeys(
        error
        for error in (view.disk.last_error, *(held.last_error for held in view.attachments))
        if error
    )
    return "; ".join(filter(None, [view.held_reason, *(f"error: {each}" for each in errors)]))

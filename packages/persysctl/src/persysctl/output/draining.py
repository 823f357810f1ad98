"""A node as an operator sees it who wants to take it out of service.

Decided here: how the progress of a drain is put into words, and the order of the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.output import tables, words

__all__ = ["blocker_lines", "count_of_workloads", "node_status", "progress_words"]


def count_of_workloads(count: int) -> str:
    """``1 workload``, ``2 workloads``."""
    return f"{count} workload{'' if count == 1 else 's'}"


def progress_words(progress: pb.GetDrainProgressResponse) -> str:
    """How far a drain is, in one line; what blocks it stands last, with a reason."""
    total = progress.moved + progress.remaining
    parts = [f"{progress.moved} of {total} moved"]
    if progress.moving:
        parts.append(f"{progress.moving} to be ended here")
    if progress.blocked:
        first = progress.blocked[0]
        parts.append(f"{len(progress.blocked)} cannot leave ({first.workload_id}: {first.reason})")
    return ", ".join(parts)


def blocker_lines(progress: pb.GetDrainProgressResponse) -> list[str]:
    """One line for each workload that cannot leave."""
    return [f"  {each.workload_id}: {each.reason or each.code}" for each in progress.blocked]


def node_status(
    view: pb.NodeView,
    progress: pb.GetDrainProgressResponse | None,
    workloads: Sequence[pb.WorkloadView],
    now: datetime,
) -> Iterator[RenderableType]:
    """The node, its drain, what runs there, and what cannot leave."""
    yield tables.pairs_table(_node_pairs(view, now))
    if progress is not None:
        yield from _drain(view, progress, now)
    yield from _titled("Workloads", tables.workloads(workloads, now, wide=False))
    if progress is not None and progress.blocked:
        yield from _titled("No other place at present", [_blockers(progress.blocked)])


def _node_pairs(view: pb.NodeView, now: datetime) -> Iterator[tuple[str, str | Text]]:
    yield "Node", view.node_id
    yield "Status", tables.status_text(view.status)
    if remarks := tables.remarks(view):
        yield "Remarks", remarks
    if view.taints:
        yield "Taints", ", ".join(map(tables.taint, view.taints))
    yield "Heartbeat", words.instant(view, "last_heartbeat", now)


def _drain(
    view: pb.NodeView, progress: pb.GetDrainProgressResponse, now: datetime
) -> Iterator[RenderableType]:
    if view.draining:
        yield from _titled("Drain", [tables.pairs_table(_drain_pairs(progress, now))])
        return
    blocked = len(progress.blocked)
    text = f"a drain would have to move {count_of_workloads(progress.remaining)}"
    yield Text("")
    yield Text(text + (f", {blocked} with no other place at present" if blocked else ""))


def _drain_pairs(
    progress: pb.GetDrainProgressResponse, now: datetime
) -> Iterator[tuple[str, str | Text]]:
    yield "Moved", f"{progress.moved} of {progress.moved + progress.remaining}"
    blocked = len(progress.blocked)
    yield "Remaining", f"{progress.remaining}" + (f", {blocked} cannot leave" if blocked else "")
    if progress.moving:
        yield "Old copies", f"{progress.moving} still to be ended here"
    if progress.HasField("deadline_at"):
        then = "is stopped" if progress.force else "stays"
        yield "Deadline", f"{words.in_future(progress, 'deadline_at', now)}; what is left {then}"


def _blockers(blocked: Iterable[pb.DrainBlocker]) -> RenderableType:
    rows = [(each.workload_id, each.code or words.NOTHING, each.reason) for each in blocked]
    return tables.plain_table("WORKLOAD", "CODE", "REASON", rows=rows)


def _titled(title: str, parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, style="bold underline")
    yield from parts

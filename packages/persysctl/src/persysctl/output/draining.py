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
from persysctl.output.words import counted

__all__ = [
    "blocker_lines",
    "left_words",
    "node_status",
    "orphan_words",
    "owed_words",
    "progress_words",
]

_ORPHAN = "orphan_on_agent"
_NAMED = 20


def progress_words(progress: pb.GetDrainProgressResponse) -> str:
    """How far a drain is, in one line; what blocks it stands last, with a reason."""
    parts = [f"{progress.moved} of {_total(progress)} moved"]
    if progress.stopped:
        parts.append(f"{progress.stopped} stopped")
    if progress.moving:
        parts.append(f"{progress.moving} to be ended here")
    if progress.blocked:
        first = progress.blocked[0]
        parts.append(f"{len(progress.blocked)} cannot leave ({first.workload_id}: {first.reason})")
    return ", ".join(parts)


def owed_words(owed: Sequence[str]) -> str:
    """Which deletions the node owes; the first few by name."""
    more = f" and {len(owed) - _NAMED} more" if len(owed) > _NAMED else ""
    names = words.clean(", ".join(owed[:_NAMED]) + more)
    return f"not yet deleted there, owed by the node: {names}"


def left_words(progress: pb.GetDrainProgressResponse) -> str:
    """What became of all that was there."""
    moved = f"{counted(progress.moved, 'workload')} moved"
    if not progress.stopped:
        return moved
    return f"{moved}, {progress.stopped} stopped at the deadline without another place"


def orphan_words(node_id: str, drifts: Iterable[pb.DriftView]) -> str:
    """What runs on the node that nobody drains, since no record knows it; empty where nothing."""
    count = sum(drift.type == _ORPHAN and drift.node_id == node_id for drift in drifts)
    if not count:
        return ""
    verb = "runs" if count == 1 else "run"
    return (
        f"{counted(count, 'workload')} that no record assigns to {node_id} still {verb} there:"
        f" persysctl drift list --node {node_id}"
    )


def _total(progress: pb.GetDrainProgressResponse) -> int:
    return progress.moved + progress.stopped + progress.remaining


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
        if progress.owed_workload_ids:
            yield Text(owed_words(progress.owed_workload_ids))
    yield from _titled("Workloads", tables.workloads(workloads, now, wide=False))
    if progress is not None and progress.blocked:
        yield from _titled("No other place at present", [_blockers(progress.blocked)])


def _node_pairs(view: pb.NodeView, now: datetime) -> Iterator[tuple[str, str | Text]]:
    yield "Node", view.node_id
    yield "Status", tables.status_text(view.status)
    if remarks := tables.remarks(view, taints=False):
        yield "Remarks", remarks
    if view.taints:
        yield "Taints", ", ".join(map(tables.taint, view.taints))
    yield "Heartbeat", words.instant(view, "last_heartbeat", now)
    if promise := tables.promise(view):
        yield "When silent", promise


def _drain(
    view: pb.NodeView, progress: pb.GetDrainProgressResponse, now: datetime
) -> Iterator[RenderableType]:
    if view.draining:
        yield from _titled("Drain", [tables.pairs_table(_drain_pairs(progress, now))])
        return
    blocked = len(progress.blocked)
    text = f"a drain would have to move {counted(progress.remaining, 'workload')}"
    yield Text("")
    yield Text(text + (f", {blocked} with no other place at present" if blocked else ""))


def _drain_pairs(
    progress: pb.GetDrainProgressResponse, now: datetime
) -> Iterator[tuple[str, str | Text]]:
    yield "Moved", f"{progress.moved} of {_total(progress)}"
    if progress.stopped:
        yield "Stopped", f"{progress.stopped} at the deadline, without another place since"
    blocked = len(progress.blocked)
    yield "Remaining", f"{progress.remaining}" + (f", {blocked} cannot leave" if blocked else "")
    if progress.moving:
        yield "Old copies", f"{progress.moving} still to be ended here"
    if progress.HasField("deadline_at"):
        then = "is stopped" if progress.force else "stays"
        yield "Deadline", f"{words.deadline(progress, 'deadline_at', now)}; what is left {then}"


def _blockers(blocked: Iterable[pb.DrainBlocker]) -> RenderableType:
    rows = [(each.workload_id, each.code or words.NOTHING, each.reason) for each in blocked]
    return tables.plain_table("WORKLOAD", "CODE", "REASON", rows=rows)


def _titled(title: str, parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, style="bold underline")
    yield from parts

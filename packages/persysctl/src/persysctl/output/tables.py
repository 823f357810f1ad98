"""Tables of workloads, nodes and events.

Decided here: which columns there are, in which order, and which only ``-o wide`` shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.output import words
from persysctl.output.columns import Columns
from persysctl.output.words import NOTHING, clean, one_line

__all__ = [
    "event_row",
    "events",
    "is_remarked",
    "nodes",
    "pairs_table",
    "plain_table",
    "promise",
    "remarked_status",
    "status_text",
    "workloads",
]

_STYLES = {
    "Running": "green",
    "Ready": "green",
    "Completed": "green",
    "Attached": "green",
    "Pending": "yellow",
    "Scheduled": "yellow",
    "Updating": "yellow",
    "RetryPending": "yellow",
    "Deleting": "yellow",
    "Draining": "yellow",
    "Provisioning": "yellow",
    "Failed": "red",
    "NotReady": "red",
    "Error": "red",
}
_REMARKS = ("restarting", "unhealthy")
"""The reasons of what runs and is not well."""
_REMARKED = "yellow"
_EVENT_STYLES = {"EventsLost": "red", "WorkloadFailed": "red", "NodeLost": "red"}


def plain_table(*headers: str, rows: Iterable[Sequence[str | Text]]) -> Columns:
    """A table without lines; only the last column may be wrapped. A cell is one line of text,
    whatever line breaks came with it."""
    return Columns(headers, ([_cell(each) for each in row] for row in rows))


def pairs_table(pairs: Iterable[tuple[str, str | Text]]) -> Table:
    """Names and what they stand for, one per line."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name), _text(value))
    return table


def _cell(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(one_line(clean(cell)))


def _text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(clean(cell))


def status_text(status: str) -> Text:
    """A status word in its colour."""
    return Text(one_line(clean(status)) or NOTHING, style=_STYLES.get(status, ""))


def remarked_status(view: pb.WorkloadView, *, fully: bool = False) -> Text:
    """A workload's status, with what is amiss although it runs: in a word, or ``fully``."""
    if not is_remarked(view):
        return status_text(view.status)
    remark = view.reason.message if fully and view.reason.message else view.reason.code
    return Text(one_line(clean(f"{view.status} ({remark})")), style=_REMARKED)


def is_remarked(view: pb.WorkloadView) -> bool:
    """Whether it runs and is not well."""
    return view.status == "Running" and view.reason.code in _REMARKS


# ---------------------------------------------------------------------- workloads


def workloads(
    views: Sequence[pb.WorkloadView], now: datetime, *, wide: bool
) -> Iterable[RenderableType]:
    """The table of workloads, or a line that there are none."""
    if not views:
        return [Text("no workloads")]
    headers = ["ID", "TYPE", "STATUS", "DESIRED", "NODE", "AGE"]
    if wide:
        headers += ["REQUESTED", "RETRIES", "UPDATED", "REVISION"]
    rows = [[*_workload_cells(view, now, wide=wide), why(view)] for view in views]
    return [plain_table(*headers, "REASON", rows=rows)]


def _workload_cells(view: pb.WorkloadView, now: datetime, *, wide: bool) -> list[str | Text]:
    cells: list[str | Text] = [
        view.workload_id,
        view.type or NOTHING,
        remarked_status(view),
        view.desired_state or NOTHING,
        view.assigned_node_id or NOTHING,
        words.age(view, "created_at", now),
    ]
    if wide:
        cells += [
            words.amounts(view.requested),
            f"{view.retry_attempts}/{view.retry_max_attempts}",
            words.age(view, "last_updated", now),
            words.short_revision(view.revision_id),
        ]
    return cells


def why(view: pb.WorkloadView) -> str:
    """Why a workload is not what was wished for, or is not well; empty where it is."""
    if is_remarked(view):
        return view.reason.message
    if view.status in ("Running", "Completed") or view.status == view.desired_state:
        return ""
    texts = (view.reason.message, view.explanation.summary, view.failure_reason, view.reason.code)
    return next((text for text in texts if text), "")


# -------------------------------------------------------------------------- nodes


def nodes(views: Sequence[pb.NodeView], now: datetime, *, wide: bool) -> Iterable[RenderableType]:
    """The table of nodes, or a line that there are none."""
    if not views:
        return [Text("no nodes")]
    headers = ["ID", "STATUS", "CPU FREE", "MEMORY FREE", "HEARTBEAT"]
    if wide:
        headers += ["ADDRESS", "TYPES", "TAINTS", "LABELS"]
    rows = [[*_node_cells(view, now, wide=wide), remarks(view, taints=not wide)] for view in views]
    return [plain_table(*headers, "REMARKS", rows=rows)]


def _node_cells(view: pb.NodeView, now: datetime, *, wide: bool) -> list[str | Text]:
    memory = f"{words.amount(view.available_memory_mb, 'MB')} of"
    cells: list[str | Text] = [
        view.node_id,
        status_text(view.status),
        f"{words.plain_number(view.available_cpu_cores)} of"
        f" {words.plain_number(view.total_cpu_cores)}",
        f"{memory} {words.amount(view.total_memory_mb, 'MB')}",
        words.age(view, "last_heartbeat", now),
    ]
    if wide:
        cells += [
            view.grpc_endpoint or NOTHING,
            ", ".join(view.supported_workload_types) or NOTHING,
            ", ".join(map(taint, view.taints)) or NOTHING,
            words.pairs(view.labels),
        ]
    return cells


def taint(each: pb.NodeTaint) -> str:
    """``key=value:Effect``."""
    value = f"={each.value}" if each.value else ""
    return f"{each.key}{value}:{each.effect or 'NoSchedule'}"


def remarks(view: pb.NodeView, *, taints: bool) -> str:
    """What an operator should know about a node: intent first, with its taints where those do not
    stand elsewhere, then trouble."""
    intent = [name for name in ("cordoned", "draining") if getattr(view, name)]
    reason = f" ({view.intent_reason})" if intent and view.intent_reason else ""
    fence = f" ({view.fence_reason})" if view.fence_reason else ""
    trouble = [f"fenced{fence}"] if view.fenced else []
    trouble += ["overcommitted"] if view.overcommitted else []
    if view.status == "Ready" and not view.supported_workload_types:
        trouble.append("no runtime answers there")
    if view.status not in ("Ready", "") and view.status_reason and not intent:
        trouble.append(view.status_reason)
    marks = [f"taint {taint(each)}" for each in view.taints] if taints else []
    return ", ".join([*([" and ".join(intent) + reason] if intent else []), *marks, *trouble])


def promise(view: pb.NodeView) -> str:
    """What its agent does by itself when it hears nothing; empty where it promised nothing."""
    if not view.stop_after_seconds:
        return ""
    span = words.span(view.stop_after_seconds)
    return f"its agent stops exclusive work {span} after its lease ended"


# ------------------------------------------------------------------------- events


def events(views: Sequence[pb.SchedulerEventView], now: datetime) -> Iterable[RenderableType]:
    """The table of events, or a line that there are none."""
    if not views:
        return [Text("no events")]
    rows: list[list[str | Text]] = [
        [
            view.id or NOTHING,
            words.age(view, "timestamp", now),
            Text(clean(view.type), style=_EVENT_STYLES.get(view.type, "")),
            view.workload_id or NOTHING,
            view.node_id or NOTHING,
            _event_text(view),
        ]
        for view in views
    ]
    return [plain_table("EVENT", "AGE", "TYPE", "WORKLOAD", "NODE", "REASON", rows=rows)]


def event_row(view: pb.SchedulerEventView, now: datetime) -> Text:
    """One event as a line of a stream that does not end."""
    when = words.instant(view, "timestamp", now).partition(" ")[0]
    about = " ".join(clean(part) for part in (view.workload_id, view.node_id) if part)
    line = Text(f"{when}  ")
    line.append(f"{clean(view.type):<22}", style=_EVENT_STYLES.get(view.type, "bold"))
    line.append(f"  {about}  {one_line(clean(_event_text(view)))}")
    line.rstrip()
    return line


def _event_text(view: pb.SchedulerEventView) -> str:
    if view.type == "EventsLost":
        lost = "events are missing here; read the present state anew"
        return f"{lost} ({view.reason})" if view.reason else lost
    details = words.pairs(view.details) if view.details else ""
    return f"{view.reason} [{details}]" if view.reason and details else view.reason or details

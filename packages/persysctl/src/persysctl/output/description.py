"""Everything about one workload or one node, for people.

Decided here: the order of the parts. What is not set is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.output import tables, words
from persysctl.output.explanation import explanation_tables
from persysctl.output.volumes import volumes_table
from persysctl.output.words import NOTHING

__all__ = ["node_description", "workload_description"]

_MIB = 1024 * 1024


def workload_description(
    view: pb.WorkloadView,
    explanation: pb.Explanation | None,
    volumes: Sequence[pb.VolumeView],
    events: Sequence[pb.SchedulerEventView],
    now: datetime,
) -> Iterator[RenderableType]:
    """The record, its volumes, why it is so, and what happened to it."""
    yield tables.pairs_table(_filled(_workload_pairs(view, now)))
    if volumes:
        yield from _titled("Volumes", volumes_table(volumes, now, wide=False))
    if explanation is not None:
        yield from _titled("Placement", explanation_tables(explanation, now, wide=True))
    yield from _titled("Events", tables.events(events, now))


def _workload_pairs(view: pb.WorkloadView, now: datetime) -> Iterator[tuple[str, str | Text]]:
    yield "Workload", view.workload_id
    yield "Type", view.type
    yield "Status", tables.remarked_status(view, fully=True)
    yield "Desired", view.desired_state
    yield "Node", view.assigned_node_id or NOTHING
    yield "Revision", view.revision_id
    yield "Your revision", view.client_revision_id
    yield "Requested", words.amounts(view.requested)
    yield "Created", words.instant(view, "created_at", now)
    yield "Updated", words.instant(view, "last_updated", now)
    yield "Failure", view.failure_reason
    if view.HasField("reason") and not tables.is_remarked(view):
        yield "Reason", _reason(view.reason, now)
    if view.retry_attempts or view.HasField("retry_next_at"):
        when = words.in_future(view, "retry_next_at", now)
        yield "Retries", f"{view.retry_attempts} of {view.retry_max_attempts}, next {when}"
    if view.HasField("usage"):
        yield "Usage", _usage(view.usage, now)


def _reason(reason: pb.ReasonDetail, now: datetime) -> str:
    text = ": ".join(part for part in (reason.code, reason.message) if part)
    since = words.age(reason, "last_transition", now)
    again = words.in_future(reason, "next_retry_at", now)
    return (
        text
        + (f" (for {since})" if since != NOTHING else "")
        + (f", tried again {again}" if again != NOTHING else "")
        + ("" if reason.retryable or not text else ", not tried again by itself")
    )


def _usage(usage: pb.WorkloadUsageSnapshot, now: datetime) -> str:
    seen = words.age(usage, "collected_at", now)
    return (
        f"cpu {usage.cpu_percent:.1f} %, memory {usage.memory_bytes / _MIB:.0f} MB"
        f" ({seen} ago, {usage.source or 'unknown source'})"
    )


def node_description(
    view: pb.NodeView,
    workloads: Sequence[pb.WorkloadView],
    events: Sequence[pb.SchedulerEventView],
    now: datetime,
) -> Iterator[RenderableType]:
    """The record, what it has and gave away, what runs there, and what happened."""
    yield tables.pairs_table(_filled(_node_pairs(view, now)))
    if view.capacity:
        yield from _titled("Resources", [_resources(view)])
    yield from _titled("Workloads", tables.workloads(workloads, now, wide=False))
    yield from _titled("Events", tables.events(events, now))


def _node_pairs(view: pb.NodeView, now: datetime) -> Iterator[tuple[str, str | Text]]:
    yield "Node", view.node_id
    yield "Status", tables.status_text(view.status)
    yield "Status reason", view.status_reason
    yield "Set by", view.status_updated_by
    yield "Set at", words.instant(view, "status_updated_at", now)
    yield "Remarks", tables.remarks(view, taints=False)
    yield "Fenced", words.instant(view, "fenced_at", now)
    yield "Heartbeat", words.instant(view, "last_heartbeat", now)
    yield "When silent", tables.promise(view)
    yield "Used", _node_usage(view, now) if view.HasField("usage") else ""
    yield "Address", view.grpc_endpoint
    yield "Types", ", ".join(view.supported_workload_types)
    yield "Labels", words.pairs(view.labels)
    yield "Taints", ", ".join(map(tables.taint, view.taints))


def _node_usage(view: pb.NodeView, now: datetime) -> str:
    cpu = words.amount(view.usage.cpu_used_millicores, "millicores")
    memory = words.amount(view.usage.memory_used_mb, "MB")
    disk = words.amount(view.usage.disk_used_gb, "GB")
    seen = words.age(view, "usage_reported_at", now)
    return f"cpu {cpu}, memory {memory}, disk {disk} ({seen} ago)"


def _resources(view: pb.NodeView) -> RenderableType:
    rows = []
    for total in view.capacity:
        reserved = words.amount_of(view.reserved, total.name) or 0
        allocated = words.amount_of(view.allocated, total.name) or 0
        free = total.amount - reserved - allocated
        numbers = (total.amount, reserved, allocated, free)
        rows.append([total.name, *(words.amount(number, total.unit) for number in numbers)])
    return tables.plain_table("RESOURCE", "TOTAL", "RESERVED", "ALLOCATED", "FREE", rows=rows)


def _filled(pairs: Iterator[tuple[str, str | Text]]) -> Iterator[tuple[str, str | Text]]:
    optional = {"Node", "Status"}
    for name, value in pairs:
        if name in optional or str(value) not in ("", NOTHING):
            yield name, value


def _titled(title: str, parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, style="bold underline")
    yield from parts

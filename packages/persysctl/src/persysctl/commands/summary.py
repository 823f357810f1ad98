"""`persysctl summary`: the cluster in a few lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import plain
from persysctl.output.tables import pairs_table

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verbs.add("summary", "Show the cluster in a few lines.", run=_run, examples=["summary -o json"])


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.summary()
    context.warn_if_stale(response)
    context.output.show(plain(response), lambda: [pairs_table(_pairs(response))])
    return ExitCode.DONE


def _pairs(summary: pb.GetClusterSummaryResponse) -> Iterator[tuple[str, str | Text]]:
    if summary.mode:
        reason = f" ({summary.mode_reason})" if summary.mode_reason else ""
        style = "green" if summary.mode == "normal" else "red"
        yield "Mode", Text(f"{summary.mode}{reason}", style=style)
    yield "Nodes", f"{summary.total_nodes}: {summary.ready_nodes} ready{_other_nodes(summary)}"
    yield "Workloads", _workloads(summary)
    if summary.instance_id:
        yield "Answered by", f"{summary.instance_id} ({summary.role or 'unknown role'})"
        yield "Leader", summary.leader_id or "nobody known"


def _other_nodes(summary: pb.GetClusterSummaryResponse) -> str:
    others = ((summary.draining_nodes, "draining"), (summary.not_ready_nodes, "not ready"))
    return "".join(f", {count} {what}" for count, what in others if count)


def _workloads(summary: pb.GetClusterSummaryResponse) -> str:
    """Each workload counted once; an older scheduler has the overlapping counters only."""
    counts = dict(summary.workloads_by_status) or {
        "Running": summary.running_workloads,
        "Pending": summary.pending_workloads,
        "Failed": summary.failed_workloads,
    }
    parts = [f"{count} {status}" for status, count in sorted(counts.items()) if count]
    return f"{summary.total_workloads}: {', '.join(parts)}" if parts else "0"

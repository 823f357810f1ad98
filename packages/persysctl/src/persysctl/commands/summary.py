"""`persysctl summary`: the cluster in a few lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import plain
from persysctl.output.tables import pairs_table, plain_table
from persysctl.output.words import NOTHING, clean

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verbs.add("summary", "Show the cluster in a few lines.", run=_run, examples=["summary -o json"])


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.summary()
    context.warn_if_stale(response)
    context.output.show(plain(response), lambda: _shown(response))
    return ExitCode.DONE


def _shown(summary: pb.GetClusterSummaryResponse) -> Iterator[RenderableType]:
    yield pairs_table(_pairs(summary))
    if summary.replicas:
        yield Text("")
        rows = [_replica_cells(each, summary) for each in summary.replicas]
        yield plain_table("REPLICA", "ADDRESS", "VERSION", "PART", rows=rows)


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
    if summary.ha_mode:
        yield "Replicas", _sharing(summary)
    yield from _trouble(summary)


def _sharing(summary: pb.GetClusterSummaryResponse) -> str:
    """How replicas share the work, and what falls to the one that answered."""
    shard = f", shard {summary.shard}" if summary.shard else ""
    owns = f"; this one acts for {summary.owned_nodes} of {summary.total_nodes} nodes"
    return f"{len(summary.replicas)}, {summary.ha_mode}{shard}{owns}"


def _trouble(summary: pb.GetClusterSummaryResponse) -> Iterator[tuple[str, Text]]:
    """What an operator has to look at; nothing where all is well."""
    if summary.foreign_leader:
        told = f"{clean(summary.foreign_leader)} leads and is not ours; mutations are refused"
        yield "Foreign", Text(told, style="red")
    if summary.unowned_nodes:
        yield "Unowned", Text(f"{summary.unowned_nodes} nodes: nobody acts for them", style="red")
    if summary.doubly_owned_nodes:
        told = f"{summary.doubly_owned_nodes} nodes: two replicas act for them"
        yield "Doubly owned", Text(told, style="red")


def _replica_cells(
    replica: pb.ReplicaView, summary: pb.GetClusterSummaryResponse
) -> tuple[str, ...]:
    address, version = replica.address or NOTHING, replica.version or NOTHING
    return replica.instance_id, address, version, _part(replica, summary)


def _part(replica: pb.ReplicaView, summary: pb.GetClusterSummaryResponse) -> str:
    """What is known of a replica's part: the leader is known of the answering one's shard only."""
    leads = replica.instance_id == summary.leader_id
    match replica.ha_mode:
        case "active-active":
            return f"shard {replica.shard}" + (", leads it" if leads else "")
        case "elastic":
            return "member, coordinates" if leads else "member"
        case _:
            return "leader" if leads else "standby"


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

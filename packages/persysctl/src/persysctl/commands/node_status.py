"""`persysctl node status`: what runs on a node, how far its drain is, and what cannot leave."""

from __future__ import annotations

import argparse

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs
from persysctl.context import Context
from persysctl.errors import RefusedError
from persysctl.exit_codes import ExitCode
from persysctl.output.draining import node_status
from persysctl.output.structured import listing, plain

__all__ = ["add"]


def add(below: Verbs) -> None:
    """Add the verb."""
    status = below.add(
        "status",
        "Show what runs on a node, how far a drain is, and what cannot leave.",
        usage="ID",
        run=_run,
        examples=["node status n1"],
    )
    status.add_argument("node_id", metavar="ID", help="the node")


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.node(args.node_id)
    context.warn_if_stale(response)
    view = response.node
    progress = await _progress(context, args.node_id)
    workloads = await context.client.workloads(node_id=args.node_id, status="")
    value = plain(view) | {"workloads": listing(workloads, "workloads")["items"]}
    if progress is not None:
        value["drain"] = plain(progress)
    context.output.show(
        value, lambda: node_status(view, progress, workloads.workloads, context.now())
    )
    return ExitCode.DONE


async def _progress(context: Context, node_id: str) -> pb.GetDrainProgressResponse | None:
    """How far a drain is; an older scheduler does not say."""
    try:
        return await context.client.operations.drain_progress(node_id)
    except RefusedError as error:
        context.output.terminal.note(f"no progress of a drain: {error}")
        return None

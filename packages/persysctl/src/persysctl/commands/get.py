"""`persysctl get`: one workload or node; without an id, all of them."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs, kind_and_ids, one_id
from persysctl.commands.list import add_filters, list_kind
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output import tables
from persysctl.output.structured import plain

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "get",
        "Show one workload or node; without an id, all of them.",
        usage="workload|node [ID] [--status STATUS] [--node ID]",
        run=_run,
        examples=["get workload web", "get node n1 -o yaml", "get workloads --node n1"],
    )
    parser.add_argument("target", nargs="+", metavar="KIND [ID]", help="workload ID or node ID")
    add_filters(parser)


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    kind, ids = kind_and_ids(args.target, ("workload", "node"))
    if not ids:
        return await list_kind(context, kind, args)
    if kind == "node":
        return await _node(context, one_id(kind, ids))
    return await _workload(context, one_id(kind, ids))


async def _workload(context: Context, workload_id: str) -> ExitCode:
    response = await context.client.workload(workload_id)
    context.warn_if_stale(response)
    view, wide = response.workload, context.output.is_wide
    context.output.show(plain(view), lambda: tables.workloads([view], context.now(), wide=wide))
    return ExitCode.DONE


async def _node(context: Context, node_id: str) -> ExitCode:
    response = await context.client.node(node_id)
    context.warn_if_stale(response)
    view, wide = response.node, context.output.is_wide
    context.output.show(plain(view), lambda: tables.nodes([view], context.now(), wide=wide))
    return ExitCode.DONE

"""`persysctl list`, `nodes` and `workloads`: tables of everything of one kind."""

from __future__ import annotations

import argparse

from persysctl.arguments import CtlParser, Verbs, kind_and_ids
from persysctl.context import Context
from persysctl.errors import UsageError
from persysctl.exit_codes import ExitCode
from persysctl.output import tables
from persysctl.output.structured import listing

__all__ = ["add", "add_filters", "list_kind"]


def add(verbs: Verbs) -> None:
    """Add the verb and its two short forms."""
    parser = verbs.add(
        "list",
        "List workloads or nodes.",
        usage="workloads|nodes [--status STATUS] [--node ID]",
        run=_run,
        examples=["list workloads --status Pending", "list nodes -o wide"],
        aliases=["ls"],
    )
    parser.add_argument("kind", metavar="workloads|nodes", help="what to list")
    add_filters(parser)
    nodes = verbs.add(
        "nodes", "List nodes.", usage="[--status STATUS]", run=_run, examples=["nodes -o wide"]
    )
    nodes.set_defaults(kind="nodes", node="")
    nodes.add_argument("--status", default="", help="only those with this status")
    workloads = verbs.add(
        "workloads",
        "List workloads.",
        usage="[--status STATUS] [--node ID]",
        run=_run,
        examples=["workloads --node n1"],
    )
    workloads.set_defaults(kind="workloads")
    add_filters(workloads)


def add_filters(parser: CtlParser) -> None:
    """The filters of lists."""
    parser.add_argument("--status", default="", help="only those with this status")
    parser.add_argument("--node", default="", metavar="ID", help="only workloads of this node")


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    kind, ids = kind_and_ids([args.kind], ("workload", "node"))
    if ids:
        raise UsageError(f"list takes no id; write: persysctl get {kind} {ids[0]}")
    return await list_kind(context, kind, args)


async def list_kind(context: Context, kind: str, args: argparse.Namespace) -> ExitCode:
    """List everything of ``kind`` that the filters in ``args`` let through."""
    if kind == "node":
        if args.node:
            raise UsageError(
                "--node narrows workloads; one node is shown by: persysctl get node ID"
            )
        return await _nodes(context, args.status)
    return await _workloads(context, args.node, args.status)


async def _nodes(context: Context, status: str) -> ExitCode:
    response = await context.client.nodes(status=status)
    context.warn_if_stale(response)
    wide = context.output.is_wide
    context.output.show(
        listing(response, "nodes"),
        lambda: tables.nodes(response.nodes, context.now(), wide=wide),
    )
    return ExitCode.DONE


async def _workloads(context: Context, node_id: str, status: str) -> ExitCode:
    response = await context.client.workloads(node_id=node_id, status=status)
    context.warn_if_stale(response)
    wide = context.output.is_wide
    context.output.show(
        listing(response, "workloads"),
        lambda: tables.workloads(response.workloads, context.now(), wide=wide),
    )
    return ExitCode.DONE

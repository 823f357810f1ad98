"""`persysctl node`: what an operator wants of a node. The larger verbs have files of their own."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs
from persysctl.commands import node_drain, node_fence, node_marks, node_remove, node_status
from persysctl.commands.node_answers import show_answer
from persysctl.context import Context
from persysctl.exit_codes import ExitCode

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb and those below it."""
    parser = verbs.add(
        "node",
        "Take a node out of service and back, taint it, label it.",
        usage="status|cordon|uncordon|drain|undrain|taint|untaint|label|fence|remove ID …",
        examples=[
            "node status n1",
            "node drain n1 --reason 'new disk' --wait --timeout 10m",
            "node undrain n1",
            "node taint n1 dedicated=db:NoSchedule",
            "node label n1 rack=r2 old-",
        ],
    )
    below = verbs.below(parser)
    node_status.add(below)
    _add_cordons(below)
    node_drain.add(below)
    node_marks.add(below)
    node_fence.add(below)
    node_remove.add(below)


def _add_cordons(below: Verbs) -> None:
    cordon = below.add(
        "cordon",
        "Let no new work come to a node; what runs there stays.",
        usage="ID [--reason TEXT]",
        run=_cordon,
        examples=["node cordon n1 --reason 'new disk'"],
    )
    uncordon = below.add(
        "uncordon",
        "Let work come to a node again.",
        usage="ID [--reason TEXT]",
        run=_uncordon,
        examples=["node uncordon n1"],
    )
    for each in (cordon, uncordon):
        each.add_argument("node_id", metavar="ID", help="the node")
        each.add_argument("--reason", default="", metavar="TEXT", help="shown with the node")


async def _cordon(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.operations.cordon(args.node_id, args.reason)
    return show_answer(context, args.node_id, response, "cordoned: no new work comes to it")


async def _uncordon(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.operations.uncordon(args.node_id, args.reason)
    return show_answer(context, args.node_id, response, "uncordoned")

"""`persysctl node cordon|uncordon`: what an operator wants of a node."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs
from persysctl.context import Context
from persysctl.errors import RefusedError
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import plain

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb and the two below it."""
    parser = verbs.add(
        "node",
        "Cordon or uncordon a node.",
        usage="cordon|uncordon ID [--reason TEXT]",
        examples=["node cordon n1 --reason 'new disk'", "node uncordon n1"],
    )
    below = verbs.below(parser)
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
    return await _set(context, args, cordoned=True)


async def _uncordon(context: Context, args: argparse.Namespace) -> ExitCode:
    return await _set(context, args, cordoned=False)


async def _set(context: Context, args: argparse.Namespace, *, cordoned: bool) -> ExitCode:
    response = await context.client.set_cordon(args.node_id, args.reason, cordoned=cordoned)
    if not response.accepted:
        raise RefusedError(response.message or f"{args.node_id}: refused without a reason")
    done = "cordoned: no new work comes to it" if cordoned else "uncordoned"
    context.output.say(f"{args.node_id} {done}")
    if context.output.is_structured:
        context.output.show(plain(response), list)
    return ExitCode.DONE

"""`persysctl node remove`: have a node forgotten that is gone for good."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs
from persysctl.commands.node_answers import show_answer
from persysctl.context import Context
from persysctl.exit_codes import ExitCode

__all__ = ["add"]


def add(below: Verbs) -> None:
    """Add the verb to those of `persysctl node`."""
    remove = below.add(
        "remove",
        "Forget a node that is gone for good; one with workloads only by force.",
        usage="ID [--force] [--reason TEXT]",
        run=_remove,
        examples=["node remove n1 --reason 'sold'", "node remove n1 --force --reason 'burnt down'"],
    )
    remove.add_argument("node_id", metavar="ID", help="the node")
    remove.add_argument("--reason", default="", metavar="TEXT", help="kept in the event")
    remove.add_argument(
        "--force",
        action="store_true",
        help="although workloads are there: they are placed elsewhere, so make sure first that the"
        " machine is off",
    )


async def _remove(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.operations.remove(args.node_id, args.reason, force=args.force)
    return show_answer(context, args.node_id, response)

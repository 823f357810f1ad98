"""`persysctl node fence`: vouch that a silent node is cut off, so that its volumes may move."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs, filled
from persysctl.commands.node_answers import show_answer
from persysctl.context import Context
from persysctl.exit_codes import ExitCode

__all__ = ["add"]

_WARNING = """\
Work that holds an exclusive volume does not leave a silent node by itself: the machine may still
run it and write. With a fence you answer for it that nothing on the machine can write any more, so
power it off or cut it from the storage first; two writers destroy a volume.
A node that still beats is refused, and a fence is over as soon as the node is heard again."""


def add(below: Verbs) -> None:
    """Add the verb to those of `persysctl node`."""
    fence = below.add(
        "fence",
        "Vouch that a silent node is cut off, so that its exclusive volumes may move.",
        usage="ID --reason TEXT",
        details=_WARNING,
        run=_fence,
        examples=["node fence n1 --reason 'powered off by hand'", "volume list --node n1"],
    )
    fence.add_argument("node_id", metavar="ID", help="the node")
    fence.add_argument(
        "--reason",
        required=True,
        type=filled,
        metavar="TEXT",
        help="how it was cut off; shown with the node and kept in the event",
    )


async def _fence(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.volumes.fence(args.node_id, args.reason)
    return show_answer(context, args.node_id, response)

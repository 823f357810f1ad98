"""`persysctl start`: wish for the state Running."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs, add_wait_options
from persysctl.commands.desired_state import set_desired_state
from persysctl.context import Context
from persysctl.exit_codes import ExitCode

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "start",
        "Let a stopped workload run again.",
        usage="workload ID [--wait]",
        run=_run,
        examples=["start workload web --wait"],
    )
    parser.add_argument("target", nargs="+", metavar="workload ID", help="the workload")
    add_wait_options(parser, "it runs")


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    return await set_desired_state(context, args, "Running")

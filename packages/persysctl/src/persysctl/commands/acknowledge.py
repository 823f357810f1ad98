"""`persysctl acknowledge-empty`: take the scheduler's store as it is, and end recovery mode."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs, filled
from persysctl.asking import add_yes_option, require_yes
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import plain

__all__ = ["add"]

_WARNING = (
    "warning: this gives up whatever the store held before. What agents run and the store does not"
    " know is left running, unmanaged; `persysctl import` can take it in, now or later."
)


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "acknowledge-empty",
        "Take an empty, older or other store as it is, and end recovery mode.",
        usage="--reason TEXT [--yes]",
        run=_run,
        examples=["acknowledge-empty --reason 'the cluster is set up anew'"],
    )
    parser.add_argument(
        "--reason", required=True, type=filled, metavar="TEXT", help="kept in the audit event"
    )
    add_yes_option(parser)


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    context.output.terminal.note(_WARNING)
    require_yes(context, args, "take the store as it is?")
    answer = await context.client.recovery.acknowledge(args.reason)
    context.output.say(f"the mode is {answer.mode}: {answer.message}")
    if context.output.is_structured:
        context.output.show(plain(answer), list)
    return ExitCode.DONE

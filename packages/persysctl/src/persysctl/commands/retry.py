"""`persysctl retry`: forget old failures of a workload and try again now."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs, kind_and_ids, one_id
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import plain

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "retry",
        "Forget the failures of a workload and try again now.",
        usage="workload ID",
        run=_run,
        examples=["retry workload web"],
    )
    parser.add_argument("target", nargs="+", metavar="workload ID", help="the workload")


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    workload_id = one_id(*kind_and_ids(args.target, ("workload",)))
    response = await context.client.retry(workload_id)
    if response.accepted:
        context.output.say(f"{workload_id} is tried again")
    else:
        context.output.terminal.note(f"{workload_id}: there is nothing to try again")
    if context.output.is_structured:
        context.output.show({"workloadId": workload_id, **plain(response)}, list)
    return ExitCode.DONE if response.accepted else ExitCode.FAILED

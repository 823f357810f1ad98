"""`persysctl retry`: forget old failures of a workload and try again now."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs, kind_and_ids, one_id
from persysctl.context import Context
from persysctl.errors import RefusedError
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import plain

__all__ = ["add"]

_DETAILS = """\
A workload with local data (a local volume, also one of a Compose file, a writable host path, a
machine's disks) waits for the node that has it, even if that node never comes back. With
--discard-local it starts elsewhere as if new: its data is neither moved nor copied, and is lost for
good where the agent removes it with the old copy, once the machine is back. Save first what you
still need.
Refused while the node is in service, since nothing has to be given up then."""


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "retry",
        "Forget the failures of a workload and try again now.",
        usage="workload ID [--discard-local]",
        details=_DETAILS,
        run=_run,
        examples=["retry workload web", "retry workload db --discard-local"],
    )
    parser.add_argument("target", nargs="+", metavar="workload ID", help="the workload")
    parser.add_argument(
        "--discard-local",
        action="store_true",
        help="give up its data on a node that is lost or drained",
    )


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    workload_id = one_id(*kind_and_ids(args.target, ("workload",)))
    response = await context.client.retry(workload_id, discard_local=args.discard_local)
    if not response.accepted:
        raise RefusedError(response.message or f"{workload_id}: there is nothing to try again")
    lost = f"; {response.message}" if response.message else ""
    context.output.say(f"{workload_id} is tried again{lost}")
    if context.output.is_structured:
        context.output.show({"workloadId": workload_id, **plain(response)}, list)
    return ExitCode.DONE

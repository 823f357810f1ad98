"""`persysctl logs`: what a workload writes, from the agent that runs it."""

from __future__ import annotations

import argparse
from contextlib import aclosing

from persys_proto.agent.v1 import agent_pb2 as wire
from persysctl.arguments import Verbs, add_agent_options, filled
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.log_following import LogFollower
from persysctl.output.log_lines import LogLines
from persysctl.whereabouts import locate

__all__ = ["add"]

_DEFAULT_TAIL = 50
_ALL_LINES = 2**31 - 1
_DETAILS = """\
The scheduler only says where the workload is; its output comes from the agent there, whose address
must be reachable from here.

What the workload wrote to standard error goes to standard error, the rest to standard output. On a
terminal its escape sequences are made harmless, colours aside; files and pipes get every line as it
is. Lines of a Compose application begin with the service; --tail counts those of all its services.

--follow goes on where the workload does: after a restart, and on another node (notes say so on
standard error). It ends with 0 when the workload is deleted, stopped, completed, or failed for
good."""


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "logs",
        "Show what a workload writes.",
        usage="WORKLOAD [--follow] [--tail N] [--timestamps] [--source SERVICE]",
        details=_DETAILS,
        run=_run,
        examples=["logs web", "logs web -f --tail 0", "logs shop --source db --timestamps"],
    )
    parser.add_argument("workload", metavar="WORKLOAD", type=filled, help="workload ID")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is to come")
    parser.add_argument(
        "--tail", type=_tail, default=_DEFAULT_TAIL, metavar="N", help="the last N lines (50; all)"
    )
    parser.add_argument("--timestamps", action="store_true", help="show when each was written")
    parser.add_argument(
        "--source", type=filled, metavar="SERVICE", help="only of this service (Compose)"
    )
    add_agent_options(parser)


def _tail(text: str) -> int:
    """The type of --tail."""
    if text == "all":
        return _ALL_LINES
    if not (text.isascii() and text.isdigit() and int(text) <= _ALL_LINES):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines; write 0 or more, or all")
    return int(text)


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    lines = LogLines(context.output, timestamps=args.timestamps)

    def show(line: wire.LogLine, node_id: str) -> None:
        if args.source in (None, line.source):
            lines.show(line, node_id)

    if args.follow:
        note = context.output.terminal.note
        await LogFollower(context.client, args.workload, show, note).follow(args.tail)
        return ExitCode.DONE
    place = await locate(context.client, args.workload)
    request = wire.StreamLogsRequest(id=args.workload, tail=args.tail)
    async with (
        context.client.agent_at(place) as agent,
        aclosing(agent.logs(request)) as found,
    ):
        async for line in found:
            show(line, place.node_id)
    return ExitCode.DONE

"""`persysctl exec`: a command inside a workload, run by the agent that has it.

Decided here: which exit code is whose. All of ours are 125, so that 0 to 124 and 126 up are the
command's; Ctrl-C is 130 as everywhere.
"""

from __future__ import annotations

import argparse
import codecs
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import TextIO

from persys_proto.agent.v1 import agent_pb2 as wire
from persysctl.arguments import Verbs, add_agent_options, filled
from persysctl.context import Context
from persysctl.errors import ConnectionLostError, UsageError
from persysctl.exit_codes import ExitCode
from persysctl.raw_terminal import raw_terminal
from persysctl.standard_input import chunks, no_chunks
from persysctl.whereabouts import locate

__all__ = ["add"]

_DETAILS = """\
The scheduler only says where the workload is; the command is run by the agent there, whose address
must be reachable from here. What the command writes comes out byte for byte, also on a terminal.
There is no time limit; --timeout is for connecting. With -i -t every key goes to the command,
Ctrl-C too; otherwise Ctrl-C ends the command.

exit codes: those of the command; 125 where persysctl itself failed (wrong usage, no connection,
no such workload, nothing that runs commands); 130 for Ctrl-C. A command that ends with 125 or 130
cannot be told apart by its code, but persysctl says "error:" where it was itself."""


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "exec",
        "Run a command inside a workload.",
        details=_DETAILS,
        run=_run,
        examples=[
            "exec web -- cat /etc/hostname",
            "exec web -i -t -- sh",
            "exec db -i -- psql app < dump.sql",
        ],
    )
    # Behind the command there are no options of ours.
    parser.usage = "%(prog)s WORKLOAD [-i] [-t] [options] -- COMMAND …"
    parser.takes_command = True
    parser.failure_code = ExitCode.EXEC_FAILED
    parser.set_defaults(failure_code=ExitCode.EXEC_FAILED)
    parser.add_argument("workload", metavar="WORKLOAD", type=filled, help="workload ID")
    parser.add_argument("-i", "--stdin", action="store_true", help="pass standard input on")
    parser.add_argument("-t", "--tty", action="store_true", help="give the command a terminal")
    add_agent_options(parser)


async def _run(context: Context, args: argparse.Namespace) -> int:
    hands_over = args.stdin and args.tty
    if hands_over and not context.stdin.isatty():
        raise UsageError("-t with -i needs a terminal at standard input; leave -t out")
    place = await locate(context.client, args.workload)
    start = wire.ExecStart(id=args.workload, command=args.command, tty=args.tty)
    given = chunks(context.stdin) if args.stdin else no_chunks()
    mode: AbstractContextManager[None] = (
        raw_terminal(context.stdin.fileno()) if hands_over else nullcontext()
    )
    async with (
        context.client.agent_at(place) as agent,
        aclosing(agent.execute(start, given)) as answers,
    ):
        # Until somebody is there to take the keys, Ctrl-C is ours.
        await agent.connect()
        with mode:
            code = await _pass_on(context, answers)
    if code is None:
        raise ConnectionLostError(
            f"the agent of node {place.node_id} ended the call without the command's exit code"
        )
    return code if 0 <= code <= 255 else 255


async def _pass_on(context: Context, answers: AsyncIterator[wire.ExecResponse]) -> int | None:
    """Write what the command writes; its exit code, if one came."""
    terminal = context.output.terminal
    write_out, write_err = _writer(terminal.out), _writer(terminal.err)
    async for answer in answers:
        match answer.WhichOneof("message"):
            case "stdout":
                write_out(answer.stdout)
            case "stderr":
                write_err(answer.stderr)
            case "exit_code":
                return answer.exit_code
            case None:
                continue
    return None


def _writer(stream: TextIO) -> Callable[[bytes], None]:
    """Writes bytes to a stream at once; to one that takes only text, as UTF-8."""
    binary = getattr(stream, "buffer", None)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(data: bytes) -> None:
        if binary is None:
            stream.write(decoder.decode(data))
        else:
            binary.write(data)
        stream.flush()

    return write

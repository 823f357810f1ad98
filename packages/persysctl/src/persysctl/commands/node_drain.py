"""`persysctl node drain|undrain`: have everything leave a node, and return it to service."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs, add_wait_options, duration
from persysctl.commands.node_answers import accepted, show_answer
from persysctl.context import Context
from persysctl.draining import DrainEnd, DrainLook, wait_for_drain
from persysctl.errors import CtlError, UsageError
from persysctl.exit_codes import ExitCode
from persysctl.output.draining import blocker_lines, left_words, orphan_words, progress_words
from persysctl.output.structured import plain
from persysctl.output.words import counted
from persysctl.progress import progress
from persysctl.wait import Outcome, Standing

__all__ = ["add"]


def add(below: Verbs) -> None:
    """Add the two verbs."""
    drain = below.add(
        "drain",
        "Have everything that runs on a node move to others.",
        usage="ID [--reason TEXT] [--deadline TIME [--force]] [--wait]",
        run=_drain,
        examples=[
            "node drain n1 --reason 'new disk' --wait --timeout 10m",
            "node drain n1 --deadline 5m --force   # what has not left by then is stopped",
        ],
    )
    drain.add_argument(
        "--deadline", type=duration, metavar="TIME", help="how long work may take to leave"
    )
    drain.add_argument(
        "--force",
        action="store_true",
        help="at the deadline, stop what no other node takes, and what has its data here: existing"
        " agents remove local volumes with it",
    )
    add_wait_options(drain, "the node is empty")
    undrain = below.add(
        "undrain",
        "Return a node to service: ends a drain and a cordon.",
        usage="ID [--reason TEXT]",
        run=_undrain,
        examples=["node undrain n1"],
    )
    for each in (drain, undrain):
        each.add_argument("node_id", metavar="ID", help="the node")
        each.add_argument("--reason", default="", metavar="TEXT", help="shown with the node")


async def _undrain(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.operations.undrain(args.node_id, args.reason)
    return show_answer(context, args.node_id, response, "is in service again")


async def _drain(context: Context, args: argparse.Namespace) -> ExitCode:
    node_id, request = args.node_id, _request(args)
    response = await context.client.operations.drain(request)
    accepted(node_id, response)
    to_move = counted(response.relocated_workloads, "workload")
    context.output.say(f"{node_id} is draining: {to_move} to move")
    if response.replaced:
        context.output.say(f"this order replaces the earlier one ({response.replaced})")
    value, code = plain(response), ExitCode.DONE
    if args.wait:
        code, look = await _wait(context, node_id, request.deadline_seconds)
        value["progress"] = plain(look.progress)
        if look.end is DrainEnd.EMPTY:
            await _tell_orphans(context, node_id)
    elif response.relocated_workloads:
        context.output.say(f"persysctl node status {node_id} says how far it is")
    if context.output.is_structured:
        context.output.show(value, list)
    return code


def _request(args: argparse.Namespace) -> pb.DrainNodeRequest:
    if args.force and args.deadline is None:
        raise UsageError("--force stops at the deadline what has not left; give --deadline as well")
    if args.deadline is not None and args.deadline < 1:
        raise UsageError("--deadline is 1s at least")
    return pb.DrainNodeRequest(
        node_id=args.node_id,
        reason=args.reason,
        deadline_seconds=round(args.deadline or 0),
        force=args.force,
    )


async def _wait(context: Context, node_id: str, deadline: int) -> tuple[ExitCode, DrainLook]:
    """Without ``--timeout`` the wait goes beyond the deadline, to see what comes of it."""
    seconds = context.wait_seconds + (deadline if context.timeout is None else 0)
    with progress(context.output.terminal, [node_id]) as tell:

        def hear(look: DrainLook) -> None:
            text = look.trouble or progress_words(look.progress)
            tell(node_id, Outcome(Standing.NOT_YET, text))

        look = await wait_for_drain(context.client, node_id, seconds, hear)
    return _ended(context, node_id, look, seconds), look


async def _tell_orphans(context: Context, node_id: str) -> None:
    """Empty of what the records know; a scheduler that cannot say what else there is, does not."""
    with suppress(CtlError):
        drifts = await context.client.drifts(node_id=node_id)
        if words := orphan_words(node_id, drifts.drifts):
            context.output.terminal.note(words)


def _ended(context: Context, node_id: str, look: DrainLook, seconds: float) -> ExitCode:
    match look.end:
        case DrainEnd.EMPTY:
            context.output.say(f"{node_id} is empty: {left_words(look.progress)}")
            return ExitCode.DONE
        case DrainEnd.ENDED:
            context.output.terminal.note(f"{node_id} is no longer being drained")
            return ExitCode.FAILED
        case DrainEnd.BLOCKED | DrainEnd.NOT_YET:
            context.output.terminal.note("\n".join(_left(node_id, look, seconds)))
            return ExitCode.NOT_YET


def _left(node_id: str, look: DrainLook, seconds: float) -> Iterator[str]:
    """What has not left, why, and what can be done."""
    if look.end is DrainEnd.BLOCKED:
        stays = counted(look.progress.remaining, "workload")
        yield f"{node_id} cannot be emptied: no other node takes {stays} at present"
    else:
        seen = look.trouble or progress_words(look.progress)
        yield f"{node_id} is not empty after {seconds:g} s: {seen}"
    yield from blocker_lines(look.progress)
    yield f"the drain goes on: persysctl node status {node_id}; node undrain {node_id} ends it"

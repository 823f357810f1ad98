"""`persysctl events`: what happened, and with --follow what happens.

Decided here: how a stream goes on after a lost connection: behind the last event that was seen,
with a growing pause. A gap is shown where it is.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs
from persysctl.context import Context
from persysctl.errors import CtlError, RefusedError
from persysctl.exit_codes import ExitCode
from persysctl.output import tables
from persysctl.output.structured import listing, plain

__all__ = ["add"]

_DEFAULT_LIMIT = 50
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "events",
        "Show what happened, oldest first.",
        usage="[--follow] [--type TYPE] [--workload ID] [--node ID] [--after-id EVENT]",
        run=_run,
        examples=["events --workload web", "events --follow --type NodeLost", "events -o json"],
    )
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--type", default="", help="only events of this type")
    parser.add_argument("--workload", default="", metavar="ID", help="only about this workload")
    parser.add_argument("--node", default="", metavar="ID", help="only about this node")
    parser.add_argument("--after-id", default="", metavar="EVENT", help="only later than this one")
    parser.add_argument(
        "--limit", type=int, default=_DEFAULT_LIMIT, metavar="N", help="the newest N (50; 0: all)"
    )


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    if args.follow:
        return await _follow(context, args)
    return await _list(context, args)


async def _list(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.events(
        pb.ListEventsRequest(
            limit=0 if args.after_id else max(0, args.limit),
            type=args.type,
            workload_id=args.workload,
            node_id=args.node,
        )
    )
    context.warn_if_stale(response)
    if args.after_id:
        _drop_until(context, response, args.after_id)
    context.output.show(
        listing(response, "events"), lambda: tables.events(response.events, context.now())
    )
    return ExitCode.DONE


def _drop_until(context: Context, response: pb.ListEventsResponse, after_id: str) -> None:
    """Leave only what came after ``after_id``; all of it, with a word, where that is not kept."""
    ids = [event.id for event in response.events]
    if after_id in ids:
        del response.events[: ids.index(after_id) + 1]
    else:
        context.output.terminal.note(
            f"event {after_id} is not among those kept (or not let through by the filters);"
            " showing all that are"
        )


async def _follow(context: Context, args: argparse.Namespace) -> ExitCode:
    """Print events until the process is interrupted; a scheduler that says no ends it."""
    request = pb.WatchEventsRequest(
        type=args.type, workload_id=args.workload, node_id=args.node, after_id=args.after_id
    )
    # Who cannot be reached now is an error; who was reached once is waited for.
    await context.client.events(pb.ListEventsRequest(limit=1))
    pause = _FIRST_PAUSE
    while True:
        lost = "the scheduler ended the stream"
        try:
            async with aclosing(context.client.watch_events(request)) as events:
                async for event in events:
                    pause = _FIRST_PAUSE
                    request.after_id = event.id or request.after_id
                    _show(context, event)
        except CtlError as error:
            if isinstance(error, RefusedError) and not error.retryable:
                raise
            lost = str(error).splitlines()[0]
        context.output.terminal.note(f"{lost}; trying again in {pause:g} s")
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _show(context: Context, event: pb.SchedulerEventView) -> None:
    context.output.show_next(plain(event), lambda: tables.event_row(event, context.now()))

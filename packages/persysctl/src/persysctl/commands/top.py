"""`persysctl top`: what workloads and nodes use, as the scheduler was last told.

Decided here: --watch goes on while the scheduler is away, under a word that says so. On a terminal
the table is redrawn in place; elsewhere one follows the other.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from google.protobuf.message import Message
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from persysctl.arguments import Verbs, duration, filled, kind_and_ids
from persysctl.context import Context
from persysctl.errors import CtlError, RefusedError, UsageError
from persysctl.exit_codes import ExitCode
from persysctl.output import usage
from persysctl.output.structured import listing, plain
from persysctl.output.words import clean

__all__ = ["add"]

_INTERVAL_SECONDS = 2.0
_DETAILS = """\
The numbers are those that agents sent with their last heartbeat; AGE says how long ago they were
measured, and what is not known is "-". CPU of a workload is percent of one core, of a node percent
of all its cores. Network and disk are sums since the workload's start."""


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "top",
        "Show what workloads or nodes use.",
        usage="[workloads|nodes] [--watch] [--node ID] [--sort cpu|memory|name]",
        details=_DETAILS,
        run=_run,
        examples=["top", "top nodes --sort memory", "top workloads --node n1 --watch"],
    )
    parser.add_argument(
        "kind", nargs="?", default="workloads", metavar="workloads|nodes", help="what to show"
    )
    parser.add_argument("--watch", action="store_true", help="show it anew until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=duration,
        default=_INTERVAL_SECONDS,
        metavar="TIME",
        help="how long between two looks (2s)",
    )
    parser.add_argument("--node", type=filled, metavar="ID", help="only on this node")
    parser.add_argument(
        "--sort",
        choices=[str(each) for each in usage.Order],
        default=str(usage.Order.CPU),
        help="the most first, or by name (cpu)",
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """One answer: ``value`` for programs, ``tables`` for people."""

    value: dict[str, object]
    tables: list[RenderableType]


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    kind, ids = kind_and_ids([args.kind], ("workload", "node"))
    if ids:
        raise UsageError("top shows all of a kind; --node ID leaves only those of one node")
    if args.watch:
        return await _watch(context, kind, args)
    look = await _look(context, kind, args)
    context.output.show(look.value, lambda: look.tables)
    return ExitCode.DONE


async def _look(context: Context, kind: str, args: argparse.Namespace) -> _Look:
    order = usage.Order(args.sort)
    if kind == "node":
        return await _look_at_nodes(context, args.node or "", order)
    response = await context.client.workloads(node_id=args.node or "", status="")
    context.warn_if_stale(response)
    found = usage.sorted_workloads(response.workloads, order)
    tables = list(usage.workloads(found, context.now()))
    return _Look(_value(response, "workloads", found), tables)


async def _look_at_nodes(context: Context, node_id: str, order: usage.Order) -> _Look:
    response = await context.client.nodes()
    context.warn_if_stale(response)
    found = [
        view for view in usage.sorted_nodes(response.nodes, order) if node_id in ("", view.node_id)
    ]
    if node_id and not found:
        raise RefusedError(f"there is no node {node_id}", not_found=True)
    tables = list(usage.nodes(found, context.now()))
    return _Look(_value(response, "nodes", found), tables)


def _value(response: Message, field: str, found: Iterable[Message]) -> dict[str, object]:
    """A list answer with the items that are shown, in their order."""
    return {**listing(response, field), "items": [plain(each) for each in found]}


# -------------------------------------------------------------------------- watch


async def _watch(context: Context, kind: str, args: argparse.Namespace) -> ExitCode:
    """Look again and again until the process is interrupted."""
    look = await _look(context, kind, args)
    with _screen(context) as show:
        show(look, "")
        while True:
            await asyncio.sleep(args.interval)
            try:
                look, trouble = await _look(context, kind, args), ""
            except CtlError as error:
                if isinstance(error, RefusedError) and not error.retryable:
                    raise
                trouble = str(error).splitlines()[0]
            show(look, trouble)


@contextmanager
def _screen(context: Context) -> Iterator[Callable[[_Look, str], None]]:
    """Yield what shows a look, and a trouble beside it."""
    output = context.output
    if output.is_structured or not output.terminal.is_redrawn():
        yield lambda look, trouble: _append(context, look, trouble)
        return
    console = output.terminal.console(output.terminal.out)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def redraw(look: _Look, trouble: str) -> None:
            remark = [Text(clean(trouble), style="red")] if trouble else []
            live.update(Group(*remark, *look.tables), refresh=True)

        yield redraw


def _append(context: Context, look: _Look, trouble: str) -> None:
    if trouble:
        context.output.terminal.note(trouble)
    elif context.output.is_structured:
        context.output.show_next(look.value, Text)
    else:
        context.output.terminal.write(*look.tables, Text())

"""`persysctl import`: rebuild lost records from what agents run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs, filled
from persysctl.asking import add_yes_option, require_yes
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output import words
from persysctl.output.structured import plain
from persysctl.output.tables import plain_table
from persysctl.output.words import NOTHING

__all__ = ["add"]

_RECORDED = ("skip", "recorded already")
"""The decision and the note of what is as it should be, and need not be read one by one."""
_DEADLINE_SECONDS = 120
"""Silent agents take ten seconds each, many at a time."""


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "import",
        "Rebuild lost records from what agents run: shows them, asks, and does it.",
        usage="[--node ID]... [--reason TEXT] [--dry-run|--yes]",
        run=_run,
        examples=[
            "import --dry-run        # what would be imported, and what would not, and why",
            "import --reason 'the disk was replaced'",
            "import --node n1 --yes  # from this node only; recovery goes on",
        ],
    )
    parser.add_argument(
        "--node",
        dest="nodes",
        action="append",
        type=filled,
        metavar="ID",
        help="from this node only; may be repeated",
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the audit event")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--dry-run", action="store_true", help="show it and change nothing")
    add_yes_option(either)
    parser.set_defaults(deadline_seconds=_DEADLINE_SECONDS)


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    nodes = args.nodes or []
    if not args.yes:
        plan = await context.client.recovery.import_from_agents(nodes, args.reason, dry_run=True)
        if args.dry_run:
            return _show(context, plan)
        _show_table(context, plan)
        require_yes(context, args, _question(plan))
    done = await context.client.recovery.import_from_agents(nodes, args.reason, dry_run=False)
    _show(context, done)
    return ExitCode.NOT_YET if done.mode == "recovery" else ExitCode.DONE


def _show(context: Context, answer: pb.ImportFromAgentsResponse) -> ExitCode:
    context.output.show(plain(answer), lambda: _table(answer, wide=context.output.is_wide))
    context.output.terminal.note(answer.message)
    return ExitCode.DONE


def _show_table(context: Context, answer: pb.ImportFromAgentsResponse) -> None:
    """Before a question: beside the answer, which a program may read."""
    terminal = context.output.terminal
    terminal.console(terminal.err).print(*_table(answer, wide=context.output.is_wide), sep="\n")
    terminal.note(answer.message)


def _question(plan: pb.ImportFromAgentsResponse) -> str:
    count = sum(each.decision == "import" for each in plan.workloads)
    what = "1 workload" if count == 1 else f"{count} workloads"
    return f"import {what}, which changes nothing on the nodes?"


def _table(answer: pb.ImportFromAgentsResponse, *, wide: bool) -> Iterator[RenderableType]:
    """What there is to decide about; what is recorded already as a number, unless ``wide``."""
    if not answer.workloads:
        yield Text("no workload is reported by any agent that answered")
        return
    shown = [each for each in answer.workloads if wide or not _is_recorded(each)]
    if shown:
        headers = ("WORKLOAD", "NODE", "TYPE", "REVISION", "DECISION", "NOTE")
        yield plain_table(*headers, rows=[_cells(each) for each in shown])
    if left_out := len(answer.workloads) - len(shown):
        text = (
            f"{words.counted(left_out, 'workload')} skipped: recorded already (-o wide lists them)"
        )
        yield Text(text)


def _is_recorded(each: pb.ImportedWorkload) -> bool:
    return (each.decision, each.detail) == _RECORDED


def _cells(each: pb.ImportedWorkload) -> list[str | Text]:
    revision = words.short_revision(each.revision_id)
    shown = [each.workload_id, each.node_id, each.type, revision, each.decision]
    return [*(cell or NOTHING for cell in shown), each.detail]

"""`persysctl diff`: how manifests differ from what is stored, field by field.

Decided here: the exit codes are those of diff(1), so that scripts can ask whether anything differs:
0 no difference, 1 differences, 2 something could not be compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs
from persysctl.commands.planned import Planned, add_files_option, plan_all
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output.words import NOTHING, clean

__all__ = ["add"]

_DIFFERS, _TROUBLE = ExitCode.FAILED, ExitCode.NOT_YET


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "diff",
        "Show how manifests differ from what is stored (exit code 1 if they do).",
        usage="-f FILE|DIR|-",
        run=_run,
        examples=["diff -f web.yaml", "diff -f jobs/ -o json"],
    )
    add_files_option(parser)


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    found = await plan_all(context, args, 0)
    context.output.show({"items": [each.as_plain() for each in found]}, lambda: _tables(found))
    return _code(found)


def _code(found: Iterable[Planned]) -> ExitCode:
    plans = [each.plan for each in found]
    if None in plans:
        return _TROUBLE
    differs = any(plan is not None and plan.outcome != "Unchanged" for plan in plans)
    return _DIFFERS if differs else ExitCode.DONE


def _tables(found: Sequence[Planned]) -> Iterator[RenderableType]:
    for each in found:
        if each.plan is None or each.plan.outcome == "Unchanged":
            continue
        yield Text(clean(f"{each.workload_id}{_compared(each.plan)}"), style="bold")
        for change in each.plan.changes:
            yield _line(change)


def _compared(plan: pb.PlanWorkloadResponse) -> str:
    """Why every field differs, where it does."""
    if plan.outcome == "Created":
        return " (not stored yet)"
    # Every spec that is known has a type; that of an imported workload is known to its agent only.
    if any(change.field == "spec.type" and not change.old for change in plan.changes):
        return " (imported and only watched: its spec is not known, so every field is shown as new)"
    return ""


def _line(change: pb.FieldChange) -> Text:
    """``image: nginx -> nginx:2``; of a secret only that it differs."""
    line = Text(f"  {clean(change.field)}: ")
    if change.old == change.new:
        return line.append(f"{_shown(change.new)} (differs, not shown)")
    line.append(_shown(change.old), style="red")
    line.append(" -> ")
    return line.append(_shown(change.new), style="green")


def _shown(value: str) -> str:
    """One line; a text of several lines is written with its line ends."""
    return clean(value.replace("\n", "\\n")) or NOTHING

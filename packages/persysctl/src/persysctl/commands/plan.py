"""`persysctl plan`: what apply would do, without doing it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs, example_count
from persysctl.commands.planned import Planned, add_files_option, plan_all
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output.explanation import explanation_tables
from persysctl.output.words import clean

__all__ = ["add"]

_WORDS = {
    "Created": "would be created",
    "Updated": "would be updated",
    "Unchanged": "would not change",
    "DesiredStateChanged": "would change its desired state",
}
_NOT_PLACED = {"unschedulable", "deferred", "halted", "pinned"}


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "plan",
        "Say what apply would do with manifests, and do nothing.",
        usage="-f FILE|DIR|- [--examples N]",
        run=_run,
        examples=["plan -f web.yaml", "plan -f web.yaml -o wide --examples 10"],
    )
    add_files_option(parser)
    parser.add_argument(
        "--examples",
        type=example_count,
        default=3,
        metavar="N",
        help="example nodes per reason (3)",
    )


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    found = await plan_all(context, args, args.examples)
    context.output.show(
        {"items": [each.as_plain() for each in found]}, lambda: _tables(context, found)
    )
    return _code(found)


def _code(found: Iterable[Planned]) -> ExitCode:
    plans = [each.plan for each in found]
    if None in plans:
        return ExitCode.FAILED
    waits = any(plan is not None and _waits(plan) for plan in plans)
    return ExitCode.NOT_YET if waits else ExitCode.DONE


def _waits(plan: pb.PlanWorkloadResponse) -> bool:
    """Whether an apply would leave it without a node, or without the room that it asks for."""
    return plan.outcome != "Unchanged" and plan.explanation.verdict in _NOT_PLACED


def _tables(context: Context, found: Sequence[Planned]) -> Iterator[RenderableType]:
    for each in found:
        if each.plan is None:
            continue
        yield Text(clean(f"{each.workload_id} {_line(each.plan)}"))
        yield from (Text(clean(f"{each.workload_id} {note}")) for note in each.plan.notes)
        if context.output.is_wide:
            yield Text("")
            yield from explanation_tables(each.plan.explanation, context.now(), wide=True)
            yield Text("")
    if len(found) > 1:
        yield Text("each is planned by itself: together they may find less room")


def _line(plan: pb.PlanWorkloadResponse) -> str:
    """``would be created on n1, score 0.93 (plan revision 0)``, or why it would wait."""
    explanation = plan.explanation
    done = _WORDS.get(plan.outcome, "would change")
    revision = f"(plan revision {plan.expected_revision})"
    if _waits(plan):
        return f"{done}, Pending: {explanation.summary or explanation.verdict} {revision}"
    where = f" on {plan.node_id}" if plan.node_id else ""
    scored = explanation.score or explanation.score_parts
    return f"{done}{where}{f', score {explanation.score:.4g}' if scored else ''} {revision}"

"""`persysctl explain`: why a workload is where it is, or nowhere, and what happens next."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from persysctl.arguments import WORKLOAD_WORDS, Verbs, example_count, kind_and_ids, one_id
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output.explanation import explanation_tables
from persysctl.output.structured import plain

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "explain",
        "Say why a workload is where it is, or why it is nowhere.",
        usage="ID [--examples N]",
        run=_run,
        examples=["explain big", "explain big -o wide --examples 10"],
    )
    parser.add_argument("target", nargs="+", metavar="ID", help="the workload")
    parser.add_argument(
        "--examples",
        type=example_count,
        default=3,
        metavar="N",
        help="example nodes per reason (3)",
    )


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.explain(_workload_id(args.target), args.examples)
    context.warn_if_stale(response)
    explanation, wide = response.explanation, context.output.is_wide
    context.output.show(
        plain(explanation), lambda: explanation_tables(explanation, context.now(), wide=wide)
    )
    return ExitCode.DONE


def _workload_id(target: Sequence[str]) -> str:
    """The id, with or without the word workload before it."""
    first, slash, _ = target[0].partition("/")
    if len(target) == 1 and not (slash and first in WORKLOAD_WORDS):
        return target[0]
    return one_id(*kind_and_ids(target, ("workload",)))

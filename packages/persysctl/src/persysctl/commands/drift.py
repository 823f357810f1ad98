"""`persysctl drift list`: what agents run that the records do not explain."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs
from persysctl.context import Context
from persysctl.exit_codes import ExitCode
from persysctl.output import words
from persysctl.output.structured import listing
from persysctl.output.tables import plain_table
from persysctl.output.words import NOTHING

__all__ = ["add"]


def add(verbs: Verbs) -> None:
    """Add the verb and the one below it."""
    examples = ["drift list", "drift list --node n1"]
    parser = verbs.add(
        "drift",
        "Show what agents run that the records do not explain.",
        usage="list [--node ID]",
        examples=examples,
    )
    below = verbs.below(parser).add(
        "list",
        "List the drifts that stand, and what is done about each.",
        usage="[--node ID]",
        run=_list,
        examples=examples,
    )
    below.add_argument("--node", default="", metavar="ID", help="of this node only")


async def _list(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.drifts(node_id=args.node)
    context.warn_if_stale(response)
    context.output.show(listing(response, "drifts"), lambda: _table(response.drifts, context.now()))
    return ExitCode.DONE


def _table(drifts: Sequence[pb.DriftView], now: datetime) -> list[RenderableType]:
    if not drifts:
        return [Text("no drift")]
    headers = ("NODE", "WORKLOAD", "TYPE", "RECORDED", "AGENT", "AGE", "ACTION", "NOTE")
    return [plain_table(*headers, rows=[_cells(drift, now) for drift in drifts])]


def _cells(drift: pb.DriftView, now: datetime) -> list[str | Text]:
    here, there = drift.scheduler_status, drift.agent_status
    if drift.type == "revision_mismatch":
        here, there = words.short_revision(here), words.short_revision(there)
    age = words.age(drift, "detected_at", now)
    shown = [drift.node_id, drift.workload_id, drift.type, here, there, age, drift.action]
    return [*(cell or NOTHING for cell in shown), drift.note]

"""`persysctl delete`: end workloads, by id or by the manifests that describe them."""

from __future__ import annotations

import argparse

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs, add_wait_options, kind_and_ids
from persysctl.commands.seeing_through import see_through
from persysctl.context import Context
from persysctl.errors import CtlError, RefusedError, UsageError
from persysctl.exit_codes import ExitCode
from persysctl.manifest import load_files
from persysctl.output.structured import plain
from persysctl.wait import Goal

__all__ = ["add"]

_WORDS = {"Deleting": "is being deleted", "Deleted": "deleted"}
_OWED = "deleted; its node is told as soon as it can be reached"
_DELETED_EVENT = "WorkloadDeleted"


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "delete",
        "Delete workloads.",
        usage="workload ID... | -f FILE|DIR|- [--force] [--wait]",
        run=_run,
        examples=[
            "delete workload web --wait",
            "delete -f web.yaml",
            "delete workload web --force   # its node is gone for good",
        ],
    )
    parser.add_argument("target", nargs="*", metavar="workload ID", help="one or more ids")
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        metavar="FILE|DIR|-",
        help="delete what these manifests describe, last first; may be repeated",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="do not wait for the agent. Where its node is silent this is your own word that the"
        " copy there writes no more: its exclusive volumes are free at once, and nobody tells the"
        " node any more, so the copy may go on running",
    )
    add_wait_options(parser, "they are gone")


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    wanted = _wanted(context, args)
    code = ExitCode.DONE
    items: list[dict[str, object]] = []
    for workload_id in wanted:
        item = await _delete(context, workload_id, force=args.force)
        items.append(item)
        if "refused" in item:
            code = ExitCode.FAILED
    if args.wait:
        goals = {
            str(item["workloadId"]): Goal(gone=True) for item in items if "refused" not in item
        }
        owed = {str(item["workloadId"]) for item in items if item.get("outcome") == "Tombstoned"}

        async def ending(workload_id: str) -> str:
            return await _ending(context, workload_id, is_owed=workload_id in owed)

        waited, _ = await see_through(context, goals, ending)
        code = waited if code is ExitCode.DONE else code
    if context.output.is_structured:
        context.output.show({"items": items}, list)
    return code


def _wanted(context: Context, args: argparse.Namespace) -> list[str]:
    if bool(args.files) == bool(args.target):
        raise UsageError("write either: persysctl delete workload ID, or: persysctl delete -f FILE")
    if args.files:
        loaded = load_files(args.files, context.stdin)
        return [manifest.workload_id for manifest in reversed(loaded)]
    kind, ids = kind_and_ids(args.target, ("workload",))
    if not ids:
        raise UsageError(f"which {kind}? write: persysctl delete {kind} ID")
    return ids


async def _delete(context: Context, workload_id: str, *, force: bool) -> dict[str, object]:
    try:
        response = await context.client.delete(workload_id, force=force)
    except RefusedError as error:
        return _refused(context, workload_id, str(error))
    if not response.success:
        return _refused(context, workload_id, response.error_message or "no reason given")
    context.output.say(f"{workload_id} {_word(response.outcome)}")
    return {"workloadId": workload_id, **plain(response)}


async def _ending(context: Context, workload_id: str, *, is_owed: bool) -> str:
    """What is left of a deletion whose records are gone; empty where nothing is."""
    if is_owed:
        return f"{workload_id}: its records are gone; its node owes the deletion"
    asked = pb.ListEventsRequest(workload_id=workload_id, type=_DELETED_EVENT, limit=1)
    try:
        told = (await context.client.events(asked)).events
    except CtlError:  # it is gone all the same
        return ""
    if not told or told[-1].details.get("outcome") != "Tombstoned":
        return ""
    node = told[-1].node_id
    return f"{workload_id}: its records are gone; {node} is silent and owes the deletion"


def _word(outcome: str) -> str:
    return _OWED if outcome == "Tombstoned" else _WORDS.get(outcome, outcome or "is being deleted")


def _refused(context: Context, workload_id: str, text: str) -> dict[str, object]:
    context.output.terminal.note(f"{workload_id} not deleted: {text}")
    return {"workloadId": workload_id, "refused": text}

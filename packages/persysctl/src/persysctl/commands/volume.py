"""`persysctl volume`: who holds which volume, and what an operator gives up."""

from __future__ import annotations

import argparse

from persysctl.arguments import Verbs
from persysctl.context import Context
from persysctl.errors import RefusedError, UsageError
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import listing, plain
from persysctl.output.volumes import volumes_table

__all__ = ["add"]

_EXAMPLES = ["volume list", "volume list --node n1", "volume release nfs:old"]
_WARNING = """\
The scheduler touches no data: what is stored in the volume stays where it is.
A volume that something uses is refused. With --force its holder's claim is given up: the work may
then start on another node and write. You answer for it that the holder cannot write any more; two
writers destroy a volume. It is refused while the holder's node beats, and over as soon as that node
is heard again. Where a whole machine is off, `persysctl node fence` says so for all of its volumes
at once."""


def add(verbs: Verbs) -> None:
    """Add the verb and those below it."""
    parser = verbs.add(
        "volume",
        "List volumes and who holds them, and give one up.",
        usage="list|release …",
        examples=_EXAMPLES,
    )
    below = verbs.below(parser)
    _add_list(below)
    _add_release(below)


def _add_list(below: Verbs) -> None:
    parser = below.add(
        "list",
        "List managed volumes, how far each is, and what keeps it where it is.",
        usage="[--node ID] [--workload ID] [--phase PHASE]",
        run=_list,
        examples=["volume list -o wide", "volume list --node n1", "volume list --phase Retained"],
    )
    parser.add_argument("--node", default="", metavar="ID", help="only those held on this node")
    parser.add_argument(
        "--workload", default="", metavar="ID", help="only those that this workload uses"
    )
    parser.add_argument(
        "--phase", default="", metavar="PHASE", help="only those in this phase, such as Retained"
    )


def _add_release(below: Verbs) -> None:
    parser = below.add(
        "release",
        "Give up the record of a volume that nothing uses, or by force a claim on it.",
        usage="ID [--force] [--reason TEXT]",
        details=_WARNING,
        run=_release,
        examples=[
            "volume release nfs:old",
            "volume release nfs:data --force --reason 'n1 was powered off by hand'",
        ],
    )
    parser.add_argument("volume_id", metavar="ID", help="the volume, such as nfs:data")
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help="kept in the event; required with --force"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="although something uses it; make sure first that its holder cannot write any more",
    )


async def _list(context: Context, args: argparse.Namespace) -> ExitCode:
    response = await context.client.volumes.list(
        node_id=args.node, workload_id=args.workload, phase=args.phase
    )
    context.warn_if_stale(response)
    wide = context.output.is_wide
    context.output.show(
        listing(response, "volumes"),
        lambda: volumes_table(response.volumes, context.now(), wide=wide),
    )
    return ExitCode.DONE


async def _release(context: Context, args: argparse.Namespace) -> ExitCode:
    if args.force and not args.reason.strip():
        raise UsageError("--force needs --reason: say why nothing writes to the volume any more")
    response = await context.client.volumes.release(args.volume_id, args.reason, force=args.force)
    if not response.accepted:
        raise RefusedError(response.message or f"{args.volume_id}: refused without a reason")
    context.output.say(f"{args.volume_id}: {response.message or 'is released'}")
    if context.output.is_structured:
        context.output.show(plain(response), list)
    return ExitCode.DONE

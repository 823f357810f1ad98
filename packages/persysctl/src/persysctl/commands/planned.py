"""What `plan` and `diff` share: their manifests, and the scheduler's plan of each.

Decided here: a refusal of one document does not keep the others back.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.context import Context
from persysctl.errors import RefusedError
from persysctl.manifest import LoadedManifest, load_files
from persysctl.output.structured import plain

__all__ = ["Planned", "add_files_option", "plan_all"]


@dataclass(frozen=True, slots=True)
class Planned:
    """What one manifest would come to: the scheduler's plan, or its refusal."""

    manifest: LoadedManifest
    plan: pb.PlanWorkloadResponse | None
    refusal: str = ""

    @property
    def workload_id(self) -> str:
        """The workload that it is about."""
        return self.manifest.workload_id

    def as_plain(self) -> dict[str, object]:
        """For programs; the expected revision is always there, zero says something too."""
        if self.plan is None:
            return {"workloadId": self.workload_id, "refused": self.refusal}
        expected = {"expectedRevision": str(self.plan.expected_revision)}
        return {"workloadId": self.workload_id, **expected, **plain(self.plan)}


def add_files_option(parser: argparse.ArgumentParser) -> None:
    """``-f``, as `apply` has it."""
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        required=True,
        metavar="FILE|DIR|-",
        help="manifests as `persysctl apply` takes them; may be repeated",
    )


async def plan_all(context: Context, args: argparse.Namespace, max_examples: int) -> list[Planned]:
    """The plans of every manifest; refusals are told at once."""
    manifests = load_files(args.files, context.stdin)
    return [await _plan(context, manifest, max_examples) for manifest in manifests]


async def _plan(context: Context, manifest: LoadedManifest, max_examples: int) -> Planned:
    try:
        plan = await context.client.plan(manifest.request, max_examples)
    except RefusedError as error:
        note = f"{manifest.workload_id} would be refused ({manifest.origin}): {error}"
        context.output.terminal.note(note)
        return Planned(manifest, None, str(error))
    context.warn_if_stale(plan)
    return Planned(manifest, plan)

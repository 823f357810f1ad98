"""`persysctl apply`: send manifests, and with --wait see them through."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs, add_wait_options, filled, plan_revision
from persysctl.commands.seeing_through import see_through
from persysctl.context import Context
from persysctl.errors import RefusedError, UsageError
from persysctl.exit_codes import ExitCode
from persysctl.manifest import LoadedManifest, load_files
from persysctl.output.structured import plain
from persysctl.output.words import short_revision
from persysctl.wait import Goal, Outcome

__all__ = ["add"]

_WORDS = {
    "Created": "created",
    "Updated": "updated",
    "Unchanged": "unchanged",
    "DesiredStateChanged": "desired state changed",
}
_NOT_PLACED = {"unschedulable", "deferred", "halted", "pinned"}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What became of one manifest: the scheduler's answer, or its refusal."""

    manifest: LoadedManifest
    response: pb.ApplyWorkloadResponse | None
    refusal: str = ""


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "apply",
        "Create or change the workloads that manifests describe.",
        usage="-f FILE|DIR|- [--plan-revision N] [--wait]",
        run=_run,
        examples=[
            "apply -f web.yaml",
            "apply -f web.yaml -f jobs/ --wait --timeout 2m",
            "apply -f web.yaml --plan-revision 41   # as planned, or not at all",
            "cat web.yaml | persysctl apply -f -",
        ],
    )
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        type=filled,
        action="append",
        required=True,
        metavar="FILE|DIR|-",
        help="manifests as YAML or JSON, one or more documents each; may be repeated",
    )
    parser.add_argument(
        "--plan-revision",
        type=plan_revision,
        metavar="N",
        help="do it only over what `persysctl plan` saw: the revision that it printed",
    )
    add_wait_options(parser, "all of them run, completed or are stopped as wished")


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    manifests = _over_plan(load_files(args.files, context.stdin), args.plan_revision)
    answers = [await _apply(context, manifest) for manifest in manifests]
    outcomes: dict[str, Outcome] = {}
    code = ExitCode.FAILED if any(answer.refusal for answer in answers) else ExitCode.DONE
    if args.wait:
        code, outcomes = await _wait(context, answers, code)
    if context.output.is_structured:
        items = [_as_plain(answer, outcomes) for answer in answers]
        context.output.show({"items": items}, list)
    return code


def _over_plan(manifests: list[LoadedManifest], revision: int | None) -> list[LoadedManifest]:
    """The same, held to the revision of a plan; one plan is about one workload."""
    if revision is None:
        return manifests
    if len(manifests) != 1:
        raise UsageError(
            f"--plan-revision is about one workload; {len(manifests)} are described here"
        )
    manifests[0].request.expected_revision = revision
    return manifests


async def _apply(context: Context, manifest: LoadedManifest) -> _Answer:
    """Send one manifest; a refusal of one does not keep the others back."""
    try:
        response = await context.client.apply(manifest.request)
    except RefusedError as error:
        answer = _Answer(manifest, None, str(error))
    else:
        answer = _Answer(manifest, response, _refusal(response))
    if answer.refusal:
        note = f"{manifest.workload_id} refused ({manifest.origin}): {answer.refusal}"
        context.output.terminal.note(note)
    else:
        context.output.say(_line(answer))
    return answer


def _refusal(response: pb.ApplyWorkloadResponse) -> str:
    if response.success:
        return ""
    reason = pb.FailureReason.Name(response.failure_reason) if response.failure_reason else ""
    return ": ".join(part for part in (reason, response.error_message) if part) or "no reason given"


def _line(answer: _Answer) -> str:
    """``web created (revision 3fa…, placed on n1)`` or ``big created, Pending: 0/3 nodes: …``."""
    response = answer.response
    assert response is not None
    explanation = response.explanation
    done = f"{answer.manifest.workload_id} {_WORDS.get(response.outcome, 'applied')}"
    if explanation.verdict in _NOT_PLACED:
        return f"{done}, Pending: {explanation.summary or explanation.verdict}"
    details = []
    if response.revision_id:
        details.append(f"revision {short_revision(response.revision_id)}")
    if explanation.node_id:
        details.append(f"placed on {explanation.node_id}")
    return f"{done} ({', '.join(details)})" if details else done


async def _wait(
    context: Context, answers: Sequence[_Answer], code: ExitCode
) -> tuple[ExitCode, dict[str, Outcome]]:
    goals = {
        answer.manifest.workload_id: await _goal(context, answer)
        for answer in answers
        if answer.response is not None and not answer.refusal
    }
    waited, outcomes = await see_through(context, goals)
    return (code if code is not ExitCode.DONE else waited), outcomes


async def _goal(context: Context, answer: _Answer) -> Goal:
    """Without a desired state in the manifest, the stored one is what is waited for."""
    assert answer.response is not None
    wished = answer.manifest.request.desired_state
    if not wished and answer.response.outcome != "Created":
        stored = await context.client.workload(answer.manifest.workload_id)
        wished = stored.workload.desired_state
    return Goal(wished or "Running", answer.response.revision_id)


def _as_plain(answer: _Answer, outcomes: dict[str, Outcome]) -> dict[str, object]:
    item: dict[str, object] = {"workloadId": answer.manifest.workload_id}
    if answer.response is not None:
        item.update(plain(answer.response))
    if answer.refusal:
        item["refused"] = answer.refusal
    outcome = outcomes.get(answer.manifest.workload_id)
    if outcome is not None and outcome.view is not None:
        item["workload"] = plain(outcome.view)
    return item

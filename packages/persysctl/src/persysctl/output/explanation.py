"""An explanation for people: verdict, reasons with their numbers, candidates, what comes next.

Decided here: how it is laid out. Codes and verdicts are the scheduler's; unknown ones are shown as
they are (field report C01: never a reason without its numbers and their unit).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.output import words
from persysctl.output.tables import pairs_table, plain_table

__all__ = ["explanation_tables"]

_VERDICT_STYLES = {"placed": "green", "not_needed": "", "unschedulable": "red", "halted": "red"}
_SHOWN_EXAMPLES = 3


def explanation_tables(
    explanation: pb.Explanation, now: datetime, *, wide: bool
) -> Iterator[RenderableType]:
    """The parts of an explanation, one under the other, with empty lines between them."""
    yield pairs_table(_head(explanation, now))
    if explanation.reasons:
        yield Text("")
        yield _reasons(explanation.reasons)
    if wide and any(reason.examples for reason in explanation.reasons):
        yield Text("")
        yield _examples(explanation.reasons)
    if explanation.candidates:
        yield Text("")
        yield _candidates(explanation.candidates)
    yield Text("")
    yield pairs_table([("Next", _next(explanation, now))])


def _head(explanation: pb.Explanation, now: datetime) -> Iterator[tuple[str, str | Text]]:
    verdict = explanation.verdict or "unknown"
    since = words.age(explanation, "since", now)
    text = Text(words.clean(verdict), style=_VERDICT_STYLES.get(verdict, "yellow"))
    yield "Verdict", text if since == words.NOTHING else text.append(f" (for {since})", style="")
    yield "Summary", explanation.summary or words.NOTHING
    if explanation.node_id:
        yield "Node", f"{explanation.node_id}{_score(explanation)}"
    if explanation.nodes_considered:
        feasible, all_nodes = explanation.nodes_feasible, explanation.nodes_considered
        yield "Nodes", f"{feasible} of {all_nodes} can take it"


def _score(explanation: pb.Explanation) -> str:
    if not explanation.score and not explanation.score_parts:
        return ""
    return f", score {explanation.score:.4g}{_parts(explanation.score_parts.items())}"


def _parts(parts: Iterable[tuple[str, float]]) -> str:
    text = " + ".join(f"{name} {value:.4g}" for name, value in sorted(parts))
    return f" = {text}" if text else ""


def _reasons(reasons: Iterable[pb.ReasonCount]) -> RenderableType:
    rows = [
        (
            reason.code,
            str(reason.nodes),
            words.amount(reason.asked, reason.unit) if reason.unit else words.NOTHING,
            words.amount(reason.free_max, reason.unit) if reason.unit else words.NOTHING,
            _example_names(reason),
            reason.message,
        )
        for reason in reasons
    ]
    return plain_table("REASON", "NODES", "ASKED", "MOST FREE", "EXAMPLES", "DETAIL", rows=rows)


def _example_names(reason: pb.ReasonCount) -> str:
    names = [each.node_id for each in reason.examples[:_SHOWN_EXAMPLES]]
    more = reason.nodes - len(names)
    if names and more > 0:
        names.append(f"{more} more")
    return ", ".join(names) or words.NOTHING


def _examples(reasons: Iterable[pb.ReasonCount]) -> RenderableType:
    rows = [
        (
            each.node_id,
            each.code or reason.code,
            words.amount(each.asked, each.unit) if each.unit else words.NOTHING,
            words.amount(each.free, each.unit) if each.unit else words.NOTHING,
            each.detail,
        )
        for reason in reasons
        for each in reason.examples
    ]
    return plain_table("NODE", "REASON", "ASKED", "FREE", "DETAIL", rows=rows)


def _candidates(candidates: Iterable[pb.Candidate]) -> RenderableType:
    rows = [
        (each.node_id, f"{each.score:.4g}", _parts(each.parts.items()).removeprefix(" = "))
        for each in candidates
    ]
    return plain_table("CANDIDATE", "SCORE", "PARTS", rows=rows)


def _next(explanation: pb.Explanation, now: datetime) -> str:
    when = words.in_future(explanation, "next_try_at", now)
    parts = [explanation.next_step] if explanation.next_step else []
    if when != words.NOTHING:
        parts.append(f"the scheduler looks again {when}")
    return "; ".join(parts) or "nothing to do"

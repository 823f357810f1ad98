"""The rules that need the machines' journals beside etcd; judged once both are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from attrs import frozen

from persys_core.model.states import DesiredState
from persys_core.model.workload import IntentAction
from persys_core.sim.agent_journal import Happening
from persys_core.sim.invariants import Rule
from proofs.chaos.journal import JournalLine
from proofs.chaos.promises import Promises
from proofs.chaos.timelines import Announced, Copy, Grave, Timelines
from proofs.chaos.violations import Violation

__all__ = ["Bounds", "broken_over_time"]


@frozen
class Bounds:
    """``grace``: how long a node must be silent before its work moves. ``after``: how much later
    the consequences of that may still come."""

    grace: timedelta
    after: timedelta = timedelta(seconds=60)

    @classmethod
    def of_seconds(cls, grace: float) -> Bounds:
        """A little is taken off, since our clock and a replica's look differ."""
        return cls(timedelta(seconds=grace * 0.9))


def broken_over_time(
    timelines: Timelines, promises: Promises, bounds: Bounds
) -> Iterator[Violation]:
    """Every rule of this module."""
    yield from announced_calls(timelines)
    yield from one_copy(timelines)
    yield from wanted_calls(timelines, promises)
    yield from wanted_graves(timelines, promises, bounds)
    yield from fenced(timelines)


def announced_calls(timelines: Timelines) -> Iterator[Violation]:
    """Rule 3, at the agent: what it is told was announced before, once for each time."""
    left, known = Counter(timelines.announced), timelines.announced_at
    for line in timelines.calls:
        call = _announced(line)
        left[call] -= 1
        if left[call] < 0:
            yield _violation(
                Rule.INTENT,
                f"{call.action} {call.revision_id[:8]} of epoch {call.epoch} came to {call.node_id}"
                f" {timelines.announced[call] - left[call]} times and was announced"
                f" {timelines.announced[call]} times",
                line,
            )
        elif line.at < known[call]:
            yield _violation(
                Rule.INTENT,
                f"{call.action} came to {call.node_id} before it was announced"
                f" ({known[call]:%H:%M:%S.%f})",
                line,
            )


def one_copy(timelines: Timelines) -> Iterator[Violation]:
    """Rule 2, on the machines: of several copies all but one are owed a delete."""
    for workload_id, copies in timelines.copies.items():
        for copy in copies:
            at_once = [
                each
                for each in timelines.running(workload_id, copy.start)
                if each is copy or each.node_id != copy.node_id
            ]
            open_ = [each for each in at_once if not _owed(timelines, workload_id, each, copy)]
            if len(open_) > 1:
                nodes = ", ".join(sorted({each.node_id for each in open_}))
                yield Violation(
                    Rule.ONE_COPY,
                    f"it was started on {copy.node_id} and runs on {nodes}",
                    copy.start,
                    0,
                    (workload_id,),
                )


def wanted_calls(timelines: Timelines, promises: Promises) -> Iterator[Violation]:
    """Rule 7, at the agent: a delete was asked for or is owed; a stop nobody asks for here."""
    for line in timelines.calls:
        if line.what is Happening.APPLY and line.detail == DesiredState.STOPPED:
            yield _violation(Rule.NO_STRAY_STOP, "it was told to stop, nobody asked for it", line)
        if line.what is not Happening.DELETE:
            continue
        asked = promises.delete_asked_at(line.workload_id)
        owed = any(grave.start <= line.at for grave in timelines.graves.get(_place(line), ()))
        if not owed and (asked is None or line.at < asked):
            yield _violation(
                Rule.NO_STRAY_STOP, f"{line.node_id} was told to delete it, nobody asked", line
            )


def wanted_graves(timelines: Timelines, promises: Promises, bounds: Bounds) -> Iterator[Violation]:
    """Rule 7, in etcd: work is taken from a node by its user's wish, or from one out of reach."""
    for (node_id, workload_id), graves in timelines.graves.items():
        asked = promises.delete_asked_at(workload_id)
        for grave in graves:
            by_user = asked is not None and asked <= grave.start
            if by_user or timelines.was_away(node_id, grave.start, bounds.grace, bounds.after):
                continue
            yield _unwanted(grave, node_id, workload_id)


def fenced(timelines: Timelines) -> Iterator[Violation]:
    """Rule 3, at the agent: what comes of an older epoch is refused by an agent of ours."""
    newest: dict[str, int] = {}
    refused = {(line.node_id, line.workload_id, line.at) for line in timelines.refusals}
    for line in timelines.calls:
        if line.epoch < newest.get(line.node_id, 0) and (*_place(line), line.at) not in refused:
            yield _violation(
                Rule.INTENT,
                f"{line.node_id} obeyed epoch {line.epoch} after {newest[line.node_id]}",
                line,
            )
        newest[line.node_id] = max(line.epoch, newest.get(line.node_id, 0))


def _announced(line: JournalLine) -> Announced:
    if line.what is Happening.DELETE:
        return Announced(line.node_id, line.workload_id, IntentAction.DELETE, "", line.epoch)
    stops = line.detail == DesiredState.STOPPED
    action = IntentAction.APPLY_STOPPED if stops else IntentAction.APPLY_RUNNING
    return Announced(line.node_id, line.workload_id, action, line.revision_id, line.epoch)


def _owed(timelines: Timelines, workload_id: str, copy: Copy, started: Copy) -> bool:
    return timelines.is_covered(copy, workload_id, started.start)


def _place(line: JournalLine) -> tuple[str, str]:
    return line.node_id, line.workload_id


def _violation(rule: Rule, text: str, line: JournalLine) -> Violation:
    return Violation(rule, text, line.at, 0, (line.workload_id, line.node_id))


def _unwanted(grave: Grave, node_id: str, workload_id: str) -> Violation:
    reason = grave.record.reason if grave.record else ""
    return Violation(
        Rule.NO_STRAY_STOP,
        f"{node_id} is to delete it ({reason}); nobody asked, and the node was within reach",
        grave.start,
        grave.revision,
        (workload_id, node_id),
        (grave.record,),
    )

"""How a demonstration is told: as lines, one per change, for logs and scripts.

Decided here: what counts as a change that is worth a line. The view for terminals is ``screen``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TextIO

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture
from persys_server.dev.verdict import why_waiting

__all__ = ["LineTeller", "Teller", "changes", "reason_text"]

_MB_PER_GB = 1024


class Teller(Protocol):
    """Whoever shows the story to a person."""

    def step(self, title: str) -> None:
        """A new part of the story begins."""
        ...

    def say(self, text: str) -> None:
        """One plain sentence about what happens."""
        ...

    def show(self, picture: Picture) -> None:
        """The cluster as it stands now."""
        ...

    def explain(self, workload_id: str, explanation: pb.Explanation) -> None:
        """Why a workload waits."""
        ...

    def hint(self, lines: Sequence[str]) -> None:
        """How the person can go on."""
        ...


class LineTeller:
    """Writes to ``out``, each line with the seconds since the start."""

    def __init__(self, out: TextIO, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._monotonic = monotonic
        self._began = monotonic()
        self._shown = Picture()
        self._steps = 0

    def step(self, title: str) -> None:
        self._steps += 1
        self._line(f"== {self._steps}. {title}")

    def say(self, text: str) -> None:
        self._line(text)

    def show(self, picture: Picture) -> None:
        for change in changes(self._shown, picture):
            self._line(f"  {change}")
        self._shown = picture

    def explain(self, workload_id: str, explanation: pb.Explanation) -> None:
        self._line(f"  {workload_id}: {explanation.summary}")
        for reason in explanation.reasons:
            self._line(f"    {reason_text(reason)}")
        if explanation.next_step:
            self._line(f"    next: {explanation.next_step}")

    def hint(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._line(f"  {line}")

    def _line(self, text: str) -> None:
        self._out.write(f"{self._monotonic() - self._began:6.1f}s  {text}\n")
        self._out.flush()


def reason_text(reason: pb.ReasonCount) -> str:
    """One cause with its numbers: ``cpu on 1 node (n1): asked 64 cores, most free 16 cores``."""
    nodes = f"{reason.nodes} node" + ("" if reason.nodes == 1 else "s")
    examples = ", ".join(each.node_id for each in reason.examples)
    where = f"{reason.code} on {nodes}" + (f" ({examples})" if examples else "")
    if reason.unit:
        asked, free = (_amount(each, reason.unit) for each in (reason.asked, reason.free_max))
        return f"{where}: asked {asked}, most free {free}"
    return f"{where}: {reason.message}" if reason.message else where


def _amount(value: int, unit: str) -> str:
    match unit:
        case "millicores":
            return f"{value / 1000:g} cores"
        case "MB" if value >= _MB_PER_GB:
            return f"{value / _MB_PER_GB:.3g} GB"
        case _:
            return f"{value} {unit}"


def changes(before: Picture, after: Picture) -> Iterator[str]:
    """What is different, as a person would say it: nodes first, then workloads."""
    for node in after.nodes:
        known = before.node(node.node_id)
        if known is None or known.status != node.status:
            why = f": {node.status_reason}" if node.status != "Ready" else ""
            yield f"{node.node_id} is {node.status}{why}"
    for view in after.workloads:
        text = _standing(view)
        known_view = before.workload(view.workload_id)
        if known_view is None or _standing(known_view) != text:
            yield text
    gone = {each.workload_id for each in before.workloads}
    for workload_id in sorted(gone - {each.workload_id for each in after.workloads}):
        yield f"{workload_id} is gone"


def _standing(view: pb.WorkloadView) -> str:
    where = f" on {view.assigned_node_id}" if view.assigned_node_id else ""
    why = why_waiting(view) if not view.assigned_node_id else ""
    return f"{view.workload_id} is {view.status}{where}" + (f": {why}" if why else "")

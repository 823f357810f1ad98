"""What really ran, where and when: told by the machines alone.

The judge of a proof may not rest on the scheduler's word, so this reads the journals of the agents'
models and nothing else. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from attrs import evolve, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.sim.agent_journal import Happening, JournalEntry

__all__ = ["Copy", "copies_of", "longest_gap", "moves", "overlaps"]

_ENDS = (Happening.STOPPED, Happening.EXITED, Happening.REMOVED)


@frozen
class Copy:
    """One run of a workload on a node; ``ended`` is None while it runs."""

    workload_id: WorkloadId
    node_id: NodeId
    began: datetime
    ended: datetime | None = None

    def until(self, end: datetime) -> datetime:
        """When it ended, at the latest ``end``."""
        return end if self.ended is None else min(self.ended, end)


def copies_of(
    journals: Iterable[tuple[NodeId, Sequence[JournalEntry]]],
) -> dict[WorkloadId, list[Copy]]:
    """Every run of every workload, in order of its beginning."""
    found: list[Copy] = []
    for node_id, entries in journals:
        found.extend(_runs(node_id, entries))
    by_workload: dict[WorkloadId, list[Copy]] = {}
    for copy in sorted(found, key=lambda each: (each.began, each.node_id)):
        by_workload.setdefault(copy.workload_id, []).append(copy)
    return by_workload


def _runs(node_id: NodeId, entries: Iterable[JournalEntry]) -> Iterator[Copy]:
    open_runs: dict[WorkloadId, Copy] = {}
    for entry in entries:
        if entry.what is Happening.STARTED:
            open_runs.setdefault(entry.workload_id, Copy(entry.workload_id, node_id, entry.at))
        elif entry.what in _ENDS and entry.workload_id in open_runs:
            yield evolve(open_runs.pop(entry.workload_id), ended=entry.at)
    yield from open_runs.values()


def longest_gap(copies: Sequence[Copy], end: datetime) -> timedelta:
    """The longest time without any copy between the first beginning and ``end``."""
    longest, covered = timedelta(0), copies[0].began
    for copy in copies:
        if copy.began >= end:
            break
        longest = max(longest, copy.began - covered)
        covered = max(covered, copy.until(end))
    return max(longest, end - covered)


def overlaps(copies: Sequence[Copy], now: datetime) -> Iterator[tuple[Copy, Copy, timedelta]]:
    """Every two copies that ran at once, with how long they did."""
    for index, one in enumerate(copies):
        for other in copies[index + 1 :]:
            together = min(one.until(now), other.until(now)) - other.began
            if together > timedelta(0):
                yield one, other, together


def moves(copies: Sequence[Copy]) -> int:
    """How often it came to run on another node than before."""
    return sum(a.node_id != b.node_id for a, b in pairwise(copies))

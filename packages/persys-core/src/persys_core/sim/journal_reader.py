"""Reads what really happened on the machines, in the order of time over all of them.

Decided here: what runs where (rule 2, on the agents' side) and which message came late or twice.
A machine's journal is complete up to the instant that its model was caught up to; every reading
catches all of them up, so that no line of an earlier instant can follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.sim.agent_cluster import SimulatedMachines
from persys_core.sim.agent_journal import Happening, JournalEntry
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.sim.invariants_volumes import one_writer

__all__ = ["JournalReader"]

_ENDS = (Happening.STOPPED, Happening.EXITED, Happening.REMOVED)
_CALLS = (Happening.APPLY, Happening.DELETE)


class JournalReader:
    """Follows every machine's journal into the scene."""

    def __init__(self, machines: SimulatedMachines, scene: Scene) -> None:
        self._machines = machines
        self._scene = scene
        self._read: dict[NodeId, int] = {}
        self._expected: Counter[tuple[NodeId, WorkloadId, Happening]] = Counter()

    def sent(self, node_id: NodeId, workload_id: WorkloadId, call: Happening) -> None:
        """The scheduler sends this call: it may arrive once."""
        self._expected[node_id, workload_id, call] += 1

    def read(self, now: datetime) -> Iterator[tuple[NodeId, JournalEntry, list[Finding]]]:
        """What is new up to ``now`` on all machines, in order, with what is wrong about it."""
        new: list[tuple[datetime, NodeId, JournalEntry]] = []
        for model in self._machines:
            model.catch_up(now)
            node_id, entries = model.settings.node_id, model.journal.entries
            start = self._read.get(node_id, 0)
            if start < len(entries):
                new.extend((entry.at, node_id, entry) for entry in entries[start:])
                self._read[node_id] = len(entries)
        new.sort(key=lambda item: item[0])
        for _, node_id, entry in new:
            yield node_id, entry, list(self._follow(node_id, entry))

    def _follow(self, node_id: NodeId, entry: JournalEntry) -> Iterator[Finding]:
        running = self._scene.running.setdefault(node_id, {})
        if entry.what in _CALLS:
            self._arrived(node_id, entry)
        elif entry.what in _ENDS:
            if running.pop(entry.workload_id, None) is not None:
                self._scene.ended_at[node_id, entry.workload_id] = entry.at
            if entry.what is Happening.EXITED and entry.detail == "0":
                self._scene.exits.add((node_id, entry.workload_id, entry.revision_id))
        elif entry.what is Happening.WIPED:
            running.clear()
        elif entry.what is Happening.STARTED:
            running[entry.workload_id] = entry.revision_id
            yield from one_copy(self._scene, node_id, entry.workload_id)
            yield from one_writer(self._scene, node_id, entry.workload_id)

    def _arrived(self, node_id: NodeId, entry: JournalEntry) -> None:
        call = (node_id, entry.workload_id, entry.what)
        if self._expected[call] > 0:
            self._expected[call] -= 1
        else:
            self._scene.strays.add((node_id, entry.workload_id))


def one_copy(scene: Scene, started_on: NodeId, workload_id: WorkloadId) -> Iterator[Finding]:
    """Rule 2, on the agents' side: at most one copy runs that no tombstone covers.

    Copies that a forced delete gave up, or that a stray message made, are left out.
    """
    uncovered = [
        node
        for node in scene.runs_on(workload_id)
        if scene.mirror.tombstone(node, workload_id) is None
        and (node, workload_id) not in scene.strays
    ]
    if len(uncovered) > 1 and not scene.wishes.was_forced(workload_id):
        yield Finding(
            Rule.ONE_COPY,
            f"started on {started_on}, and it runs on {', '.join(sorted(uncovered))} with no"
            " tombstone for the older copy",
            (workload_id, *sorted(uncovered)),
        )

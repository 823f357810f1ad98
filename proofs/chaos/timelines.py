"""What was, and when: copies on machines, owed deletes, announced calls, machines out of reach.

Decided here: what of a history is kept for the rules that need all of it. Instants are those of
one machine's clock; what is known from etcd alone was seen a little later than it was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta

from attrs import define, field, frozen

from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.workload import IntentAction, Tombstone
from persys_core.ports.cluster_store import Kind
from persys_core.sim.agent_journal import Happening
from persys_core.sim.invariants_calls import new_intents
from persys_core.sim.mirror import Step
from proofs.chaos.journal import JournalLine

__all__ = ["Announced", "Copy", "Grave", "Span", "Timelines"]

_ENDS = (Happening.STOPPED, Happening.EXITED, Happening.REMOVED)


@define
class Span:
    """From when to when; an open end is ``None``."""

    start: datetime
    end: datetime | None = None

    def holds(self, at: datetime) -> bool:
        """Whether it covers this instant."""
        return self.start <= at and (self.end is None or at <= self.end)


@define
class Copy(Span):
    """A workload that runs on a node."""

    node_id: NodeId = ""
    revision_id: RevisionId = ""


@define
class Grave(Span):
    """A delete that is owed to a node, and the record that it began with."""

    record: Tombstone | None = None
    revision: int = 0


@frozen
class Announced:
    """A call that may be made; deletes have no revision."""

    node_id: NodeId
    workload_id: WorkloadId
    action: IntentAction
    revision_id: RevisionId
    epoch: int


@define(eq=False)
class Timelines:
    """Fed with every step of etcd, every line of the journals and every fault of a machine."""

    copies: dict[WorkloadId, list[Copy]] = field(factory=lambda: defaultdict(list))
    graves: dict[tuple[NodeId, WorkloadId], list[Grave]] = field(factory=lambda: defaultdict(list))
    announced: Counter[Announced] = field(factory=Counter)
    announced_at: dict[Announced, datetime] = field(factory=dict)
    newest: dict[NodeId, int] = field(factory=dict)
    """The highest epoch that anything was announced under on each node."""
    calls: list[JournalLine] = field(factory=list)
    refusals: list[JournalLine] = field(factory=list)
    away: dict[NodeId, list[Span]] = field(factory=lambda: defaultdict(list))
    """When a machine or its agent could not be reached, by our own doing."""

    @property
    def newest_epoch(self) -> int:
        """The highest epoch that anything was announced under."""
        return max(self.newest.values(), default=0)

    def step(self, step: Step) -> None:
        """Follow one revision of etcd."""
        for workload_id, intent in new_intents(step):
            revision = "" if intent.action is IntentAction.DELETE else intent.revision_id
            call = Announced(intent.node_id, workload_id, intent.action, revision, intent.epoch)
            self.announced[call] += 1
            self.newest[intent.node_id] = max(self.newest.get(intent.node_id, 0), intent.epoch)
            self.announced_at.setdefault(call, intent.committed_at)
        for change in step.touched:
            if change.key.kind is not Kind.TOMBSTONE:
                continue
            if isinstance(change.after, Tombstone):
                self._owed(change.after, step.revision)
            elif isinstance(change.before, Tombstone):
                self._settled(change.before, step.at)

    def line(self, line: JournalLine) -> None:
        """Follow one line of a machine's journal."""
        if line.what in (Happening.APPLY, Happening.DELETE):
            self.calls.append(line)
        elif line.what is Happening.REFUSED:
            self.refusals.append(line)
        elif line.what is Happening.STARTED:
            self._ends(line.workload_id, line.node_id, line.at)
            self.copies[line.workload_id].append(
                Copy(line.at, None, line.node_id, line.revision_id)
            )
        elif line.what in _ENDS:
            self._ends(line.workload_id, line.node_id, line.at)
        elif line.what is Happening.WIPED:
            for workload_id in self.copies:
                self._ends(workload_id, line.node_id, line.at)

    def running(self, workload_id: WorkloadId, at: datetime | None = None) -> list[Copy]:
        """The copies that run at an instant, or that have no end yet."""
        if at is None:
            return [copy for copy in self.copies.get(workload_id, []) if copy.end is None]
        return [copy for copy in self.copies.get(workload_id, []) if copy.holds(at)]

    def is_covered(self, copy: Copy, workload_id: WorkloadId, at: datetime) -> bool:
        """Whether the end of this copy was owed at the instant."""
        return any(grave.holds(at) for grave in self.graves.get((copy.node_id, workload_id), ()))

    def was_away(self, node_id: NodeId, at: datetime, least: timedelta, after: timedelta) -> bool:
        """Whether at ``at``, or not longer ago than ``after``, the machine had been out of reach
        for ``least``."""
        for span in self.away.get(node_id, ()):
            end = span.end or at
            if end - span.start >= least and span.start + least <= at <= end + after:
                return True
        return False

    def _owed(self, record: Tombstone, revision: int) -> None:
        spans = self.graves[record.node_id, record.workload_id]
        if not spans or spans[-1].end is not None:
            spans.append(Grave(record.created_at, None, record, revision))

    def _settled(self, record: Tombstone, at: datetime) -> None:
        spans = self.graves[record.node_id, record.workload_id]
        if spans and spans[-1].end is None:
            spans[-1].end = at

    def _ends(self, workload_id: WorkloadId, node_id: NodeId, at: datetime) -> None:
        for copy in self.copies.get(workload_id, ()):
            if copy.node_id == node_id and copy.end is None:
                copy.end = at

"""OrphanCopies: where a workload without a node runs all the same, although no record says so.

Decided here: whose word counts. After a restored or emptied store, or a forced delete, a copy may
run on; starting the workload elsewhere then would run it twice, exclusive volumes included. What
this replica was told lately counts at once, a drift record where it was told nothing in full.
A copy that does not run can do no harm, and a silent node says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from persys_core.control.view import ClusterView
from persys_core.model.cluster import ClusterMarker
from persys_core.model.drift import DriftRecord, DriftType
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.workload import Assignment, Tombstone
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Key, Kind, Record, Versioned
from persys_core.reconcile.observe import says_gone_and_stopped

__all__ = ["OrphanCopies"]

COUNTS_FOR = timedelta(seconds=30)
"""For so long what a node said counts without being said again."""
UNHEARD_FOR = timedelta(seconds=45)
"""After a recovery the agents, which were refused, come back within this time."""
STALE_WITHIN = timedelta(seconds=2)
"""A report that comes so soon after its record ended may be older than that end."""
_ENDS_REMEMBERED = 10_000
_HARMLESS = (AgentState.STOPPED, AgentState.FAILED)

_Pair = tuple[NodeId, WorkloadId]


class OrphanCopies:
    """The copies that one replica knows of. ``is_heard``: whether a node beats."""

    def __init__(self, view: ClusterView, clock: Clock, is_heard: Callable[[NodeId], bool]) -> None:
        self._view = view
        self._clock = clock
        self._is_heard = is_heard
        self._seen: dict[WorkloadId, dict[NodeId, datetime]] = {}
        self._on_node: dict[NodeId, set[WorkloadId]] = {}
        self._listed_at: dict[NodeId, datetime] = {}
        self._recorded: dict[WorkloadId, set[NodeId]] = {}
        self._ended: dict[_Pair, datetime] = {}
        view.listen(self._on_change)

    def take(
        self, node_id: NodeId, reports: Iterable[AgentReport], at: datetime, *, full: bool
    ) -> frozenset[WorkloadId]:
        """Note what ``node_id`` has that is neither assigned nor owed there, as it was at ``at``.

        ``full``: what is not among ``reports`` is not there. Returns what came or went.
        """
        found = {each.workload_id for each in reports if self._is_copy(node_id, each, at)}
        before = self._on_node.get(node_id, set())
        now_there = found if full else before | found
        for workload_id in before - now_there:
            self._drop(node_id, workload_id)
        for workload_id in found:
            self._seen.setdefault(workload_id, {})[node_id] = at
        if now_there:
            self._on_node[node_id] = now_there
        else:
            self._on_node.pop(node_id, None)
        if full:
            self._listed_at[node_id] = at
        return frozenset(before ^ now_there)

    def of(self, workload_id: WorkloadId) -> tuple[NodeId, ...]:
        """The nodes that run it, by id; none of a workload that has a node."""
        if self._view.assignment(workload_id) is not None:
            return ()
        since = self._clock.now() - COUNTS_FOR
        seen = self._seen.get(workload_id, {})
        fresh = {node_id for node_id, at in seen.items() if at >= since}
        recorded = self._recorded.get(workload_id, ())
        fresh.update(each for each in recorded if not self._was_listed(each, since))
        return tuple(sorted(filter(lambda each: self._counts(each, workload_id), fresh)))

    def unheard_until(self, workload_id: WorkloadId) -> datetime | None:
        """Until when nobody can know where a workload without a node runs: shortly after the
        records began anew, when not every agent is back. An import knows its nodes, so that it is
        over once all of them were listed."""
        marker = self._view.marker()
        if marker is None or not marker.value.epoch_base or self._all_are_back(marker):
            return None
        until = marker.value.created_at + UNHEARD_FOR
        waits = self._view.assignment(workload_id) is None and self._clock.now() < until
        return until if waits else None

    def _all_are_back(self, marker: Versioned[ClusterMarker]) -> bool:
        nodes = list(self._view.values(Kind.NODE, Node))
        known = any(each.registered_at <= marker.value.created_at for each in nodes)
        return known and all(each.listed_under == marker.create_revision for each in nodes)

    def _was_listed(self, node_id: NodeId, since: datetime) -> bool:
        at = self._listed_at.get(node_id)
        return at is not None and at >= since

    def _counts(self, node_id: NodeId, workload_id: WorkloadId) -> bool:
        known = self._view.node(node_id) is not None and self._is_heard(node_id)
        return known and self._view.tombstone(node_id, workload_id) is None

    def _is_copy(self, node_id: NodeId, report: AgentReport, at: datetime) -> bool:
        workload_id = report.workload_id
        assignment = self._view.assignment(workload_id)
        if assignment is not None and assignment.value.node_id == node_id:
            return False
        ended = self._ended.get((node_id, workload_id))
        if ended is not None and at <= ended + STALE_WITHIN:
            return False
        owed = self._view.tombstone(node_id, workload_id) is not None
        harmless = report.state in _HARMLESS or says_gone_and_stopped(report)
        return not owed and not harmless

    def _drop(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        nodes = self._seen.get(workload_id, {})
        nodes.pop(node_id, None)
        if not nodes:
            self._seen.pop(workload_id, None)

    # Following the records

    def _on_change(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        match key.kind:
            case Kind.ASSIGNMENT | Kind.TOMBSTONE:
                self._note_end(before, after)
            case Kind.DRIFT:
                self._index(before, add=False)
                self._index(after, add=True)
            case Kind.NODE if after is None:
                self._forget(key.id)
            case _:
                pass

    def _note_end(self, before: Versioned[Record] | None, after: Versioned[Record] | None) -> None:
        """A record that explained a copy on a node ended."""
        old, new = before.value if before else None, after.value if after else None
        if not isinstance(old, Assignment | Tombstone):
            return
        if isinstance(new, Assignment | Tombstone) and new.node_id == old.node_id:
            return
        if len(self._ended) >= _ENDS_REMEMBERED:
            for pair in list(self._ended)[: _ENDS_REMEMBERED // 2]:
                del self._ended[pair]
        self._ended[old.node_id, old.workload_id] = self._clock.now()

    def _index(self, stored: Versioned[Record] | None, *, add: bool) -> None:
        record = stored.value if stored else None
        if not isinstance(record, DriftRecord) or record.resolved:
            return
        if record.drift_type != DriftType.ORPHAN_ON_AGENT or record.agent_status in _HARMLESS:
            return
        nodes = self._recorded.setdefault(record.workload_id, set())
        if add:
            nodes.add(record.node_id)
        else:
            nodes.discard(record.node_id)
        if not nodes:
            del self._recorded[record.workload_id]

    def _forget(self, node_id: NodeId) -> None:
        for workload_id in self._on_node.pop(node_id, set()):
            self._drop(node_id, workload_id)
        self._listed_at.pop(node_id, None)

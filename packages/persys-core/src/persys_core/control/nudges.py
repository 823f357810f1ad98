"""Nudges: what a change in the store has to be looked at for.

Decided here: which works a change of one record concerns. That nothing is forgotten is not left to
this alone: passes and sweeps look again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from attrs import define

from persys_core.control.view import ClusterView
from persys_core.control.work import Work, tombstone_work, workload_work
from persys_core.model.drift import DriftRecord
from persys_core.model.ids import NodeId
from persys_core.model.node import Fence, Node, OperatorIntent
from persys_core.model.replica import Evictions
from persys_core.model.volume import Volume
from persys_core.model.workload import Tombstone, Workload
from persys_core.ports.cluster_store import Key, Kind, Record, Versioned

__all__ = ["Nudges"]

_Stored = Versioned[Record] | None


@define(eq=False)
class Nudges:
    """A view listener. ``nudge`` has one work looked at, ``node_changed`` everything on a node,
    ``capacity_changed`` all that waits, ``audit_soon`` the ledger."""

    _view: ClusterView
    _nudge: Callable[[Work], None]
    _node_changed: Callable[[NodeId], None]
    _capacity_changed: Callable[[], None]
    _audit_soon: Callable[[], None]

    def on_change(self, key: Key, before: _Stored, after: _Stored) -> None:
        """Have everything looked at that this change concerns."""
        match key.kind:
            case Kind.WORKLOAD | Kind.STATUS | Kind.ASSIGNMENT:
                self._work_changed(key, before, after)
            case Kind.TOMBSTONE:
                self._tombstone_changed(before, after)
            case Kind.VOLUME if _released(before) != _released(after):
                self._nudge_users(before, after)
            case Kind.DRIFT if after is None:
                self._nudge_waiting(before)
            case Kind.LEDGER if after is None:
                self._audit_soon()
            case Kind.NODE if _word_on(before) != _word_on(after):
                self._node_changed(key.id)
            case Kind.EVICTIONS:
                for node_id in sorted(_may_move(after) - _may_move(before)):
                    self._node_changed(node_id)
            case _:
                pass

    def _work_changed(self, key: Key, before: _Stored, after: _Stored) -> None:
        self._nudge(workload_work(key.id))
        if key.kind is Kind.WORKLOAD and _is_imported(before) and not _is_imported(after):
            # Its volumes are known from now on: who had to wait for that goes on.
            self._capacity_changed()
            return
        for node_id in sorted(self._view.graves_of(key.id)):
            self._nudge(tombstone_work(node_id, key.id))

    def nudge_leaving(self, node_id: NodeId) -> None:
        """Everything that must leave this node, if it is one that is to be left."""
        node = self._view.node(node_id)
        if node is not None and (node.value.intent.draining or node.value.intent.taints):
            for workload_id in sorted(self._view.assigned_to(node_id)):
                self._nudge(workload_work(workload_id))

    def _nudge_waiting(self, before: _Stored) -> None:
        """A copy that ran unrecorded is gone: the workload that waited for that goes on."""
        if before is not None and isinstance(before.value, DriftRecord):
            self._nudge(workload_work(before.value.workload_id))

    def _nudge_users(self, before: _Stored, after: _Stored) -> None:
        """An operator answers for a volume's holder: who waits for that goes on."""
        for stored in (before, after):
            if stored is not None and isinstance(stored.value, Volume):
                for workload_id in stored.value.workload_refs:
                    self._nudge(workload_work(workload_id))

    def _tombstone_changed(self, before: _Stored, after: _Stored) -> None:
        """A new one is seen through; the end of one lets its workload, or the next one, go on."""
        if after is not None and isinstance(after.value, Tombstone):
            self._nudge(tombstone_work(after.value.node_id, after.value.workload_id))
        elif before is not None and isinstance(before.value, Tombstone):
            self._nudge(workload_work(before.value.workload_id))
            self.nudge_leaving(before.value.node_id)


def _may_move(stored: _Stored) -> frozenset[NodeId]:
    record = stored.value if stored else None
    return frozenset(record.may_move) if isinstance(record, Evictions) else frozenset()


def _is_imported(stored: _Stored) -> bool:
    record = stored.value if stored else None
    return isinstance(record, Workload) and record.imported is not None


def _released(stored: _Stored) -> datetime | None:
    claim = stored.value.claim if stored and isinstance(stored.value, Volume) else None
    return claim.released_at if claim else None


def _word_on(stored: _Stored) -> tuple[OperatorIntent, Fence | None] | None:
    """What operators say of a node; ``None`` where there is no such node."""
    if stored is None or not isinstance(stored.value, Node):
        return None
    return stored.value.intent, stored.value.fence

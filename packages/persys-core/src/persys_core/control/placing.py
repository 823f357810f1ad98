"""Placing: what a replica does to give a workload a node, as part of a larger transaction.

The placer decides on the fleet as this replica sees it; the ledger's comparisons make the commit
safe whatever other replicas do. Used by admission (any replica) and by the reconciler (leader).

Size: whatever gives a workload a share, keeps it or takes it away, in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from attrs import evolve, frozen

from persys_core.control.events import EventPublisher
from persys_core.control.orphan_copies import OrphanCopies
from persys_core.control.view import ClusterView
from persys_core.model.cluster import MarkerState
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.resources import Resources, unit_of
from persys_core.model.states import WorkloadStatus
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.placement import ledger
from persys_core.placement.copies import explain_at_copy, place_at_copy, too_early
from persys_core.placement.demand import charge_for
from persys_core.placement.explain import Explanation, ReasonCode, ReasonTally, Verdict
from persys_core.placement.ledger import Target, Transaction
from persys_core.placement.placer import Placed, Placer
from persys_core.placement.request import PlacementRequest
from persys_core.placement.reservations import Reservations
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Key, Versioned
from persys_core.ports.observer import Metric, Observer
from persys_core.reconcile import transitions
from persys_core.volumes.affinity import has_local_data
from persys_core.volumes.claims import NEXT_STEPS, hindrance
from persys_core.volumes.disks import local_disk_node, volumes_wanted
from persys_core.volumes.outcome import Outcome
from persys_core.volumes.wishes import is_exclusive_volume

__all__ = ["GROWS_NEXT", "Placing"]

GROWS_NEXT = (
    "the new revision is sent as soon as the node has room, or to another node once nothing of the"
    " old revision runs"
)
"""What happens next to a workload whose node has no room for its new revision."""


@frozen
class Placing:
    """Places workloads of one view."""

    _view: ClusterView
    _placer: Placer
    _reservations: Reservations
    _events: EventPublisher
    _clock: Clock
    _observer: Observer
    _is_ready: Callable[[NodeId], bool]
    _copies: OrphanCopies

    def without_holding(self) -> Placing:
        """The same, for looking: what it places is not held, so that the next look finds no trace
        of this one."""
        return evolve(self, reservations=Reservations())

    def into(
        self, tx: Transaction, workload: Workload, status: StatusRecord
    ) -> tuple[Transaction, StatusRecord, Explanation | None]:
        """Add the placement of ``workload`` to ``tx``, or say why there is none.

        A workload that has its full share already is left as it is, with nothing to explain. The
        caller writes the returned status.
        """
        assignment = self._view.assignment(workload.id)
        if assignment is None or assignment.value.released:
            return self._place(tx, workload, status, assignment)
        if self._ledger_missing() is not None:
            return tx.expecting(Key.assignment(workload.id), assignment), status, None
        return self._resize(tx, workload, status, assignment)

    def relocate(
        self, tx: Transaction, workload: Workload, status: StatusRecord, why: str
    ) -> tuple[Transaction, StatusRecord, Explanation]:
        """Move ``workload`` from the node that it is assigned to; the node owes a delete.

        Where no other node can take it, it is unassigned and pending, and the node owes the
        delete all the same. A node that left the cluster owes nothing.
        """
        assignment = self._view.assignment(workload.id)
        assert assignment is not None, "this is a bug: only an assigned workload can move"
        now = self._clock.now()
        old_node = assignment.value.node_id
        request = self.request_for(workload, status)
        found = self._found_elsewhere(workload, request, old_node)
        tomb = self._view.tombstone(old_node, workload.id)
        if not isinstance(found, Placed):
            tx = self._leave(tx, workload, assignment, status, why)
            reason = transitions.awaiting(
                status, found.reasons[0].code, f"{why}; {found.summary}", now
            ).reason
            assert reason is not None  # awaiting always gives one
            return tx, transitions.unassigned(status, reason, now), found
        target = self._target(found, request)
        tx = self._activate(tx)
        if self._view.node(old_node) is None:
            tx = ledger.unassign(tx, assignment, self._view.allocation(old_node))
            tx = ledger.assign(tx, workload, _as_released(assignment), target, now)
        else:
            tx = ledger.move(tx, workload, assignment, tomb, target, now, call=status.intent)
        return tx, transitions.assigned(status, now), _explained(found)

    def move_away(
        self, tx: Transaction, workload: Workload, status: StatusRecord
    ) -> tuple[Transaction, StatusRecord, Explanation]:
        """Move ``workload`` off a node that works, where another one takes it.

        A running copy runs on until the new one is healthy, except where both would write to one
        exclusive volume. Without another node nothing changes, and the explanation says why.
        """
        assignment = self._view.assignment(workload.id)
        assert assignment is not None, "this is a bug: only an assigned workload can move"
        now = self._clock.now()
        old_node = assignment.value.node_id
        request = self.request_for(workload, status)
        found = self._found(workload, request, excluding=frozenset((old_node,)))
        if not isinstance(found, Placed):
            return tx, status, _about_others(found)
        tx = ledger.move(
            self._activate(tx),
            workload,
            assignment,
            self._view.tombstone(old_node, workload.id),
            self._target(found, request),
            now,
            call=status.intent,
            start_first=self._may_overlap(workload, status),
        )
        return tx, transitions.assigned(status, now), _explained(found)

    def found(
        self,
        tx: Transaction,
        workload: Workload,
        status: StatusRecord,
        node_id: NodeId,
        now: datetime,
    ) -> Transaction | None:
        """Charge ``workload`` on the node that runs it already, whether or not there is room.
        ``None`` where there is no such node."""
        node = self._view.node(node_id)
        if node is None:
            return None
        charge = charge_for(self.request_for(workload, status), node.value)
        target = Target(node, self._view.allocation(node_id), charge, "found where it runs")
        assignment = self._view.assignment(workload.id)
        return ledger.adopt(tx, workload, assignment, target, now)

    def request_for(self, workload: Workload, status: StatusRecord) -> PlacementRequest:
        """What the placer is asked for this workload."""
        pinned = status.data_node_id if has_local_data(workload.spec) else ""
        pinned = pinned or local_disk_node(workload.spec, Outcome(self._view))
        return PlacementRequest.of(
            workload, pinned_to=pinned, avoid_node=status.retry.avoid_node_id
        )

    def explain(self, workload: Workload, status: StatusRecord, max_examples: int) -> Explanation:
        """The full explanation of where the workload could go now."""
        if (hindered := self._hindered(workload)) is not None:
            return hindered
        request, now = self.request_for(workload, status), self._clock.now()
        if copies := self._copies.of(workload.id):
            return explain_at_copy(self._placer, request, copies, now, max_examples)
        if (until := self._copies.unheard_until(workload.id)) is not None:
            return too_early(until)
        return self._placer.explain(request, now, max_examples=max_examples)

    def explain_leaving(self, workload: Workload, status: StatusRecord) -> Explanation | None:
        """Why no other node takes a placed workload; ``None`` where one does."""
        assignment = self._view.assignment(workload.id)
        here = frozenset((assignment.value.node_id,)) if assignment else frozenset[NodeId]()
        found = self._found(workload, self.request_for(workload, status), excluding=here)
        return None if isinstance(found, Placed) else _about_others(found)

    def publish(self, workload_id: WorkloadId, node_id: NodeId, explanation: Explanation) -> None:
        """Tell of a placement, or of a workload that found no node."""
        placed = explanation.verdict is Verdict.PLACED
        kind = EventType.WORKLOAD_SCHEDULED if placed else EventType.WORKLOAD_UNSCHEDULABLE
        self._observer.increment(Metric.PLACEMENTS, {"result": explanation.verdict.value})
        self._events.publish(
            kind,
            workload_id=workload_id,
            node_id=node_id,
            reason=explanation.summary,
            code=explanation.reasons[0].code if explanation.reasons else "",
        )

    # Finding

    def _found(
        self,
        workload: Workload,
        request: PlacementRequest,
        excluding: frozenset[NodeId] = frozenset(),
    ) -> Placed | Explanation:
        if (hindered := self._hindered(workload)) is not None:
            return hindered
        now = self._clock.now()
        if copies := self._copies.of(workload.id):
            return place_at_copy(self._placer, request, copies, now)
        if (until := self._copies.unheard_until(workload.id)) is not None:
            return too_early(until)
        found = self._placer.place(request, now, excluding=excluding)
        if isinstance(found, Placed):
            return found
        return Explanation(
            Verdict.UNSCHEDULABLE,
            found.summary,
            nodes_considered=found.nodes,
            reasons=found.reasons,
            next_step="it is tried again as soon as capacity, a node, a label or a taint changes",
        )

    def _hindered(self, workload: Workload) -> Explanation | None:
        """What no node could do anything about."""
        if (missing := self._ledger_missing()) is not None:
            return missing
        found = hindrance(workload, Outcome(self._view), self._is_ready)
        if found is None:
            return None
        return Explanation(
            Verdict.UNSCHEDULABLE,
            found.text,
            reasons=(ReasonTally(found.code, 0, found.text),),
            next_step=NEXT_STEPS[found.code],
        )

    def _found_elsewhere(
        self, workload: Workload, request: PlacementRequest, old_node: NodeId
    ) -> Placed | Explanation:
        """A place on another node; without one, what every node lacks, the old one too."""
        found = self._found(workload, request, excluding=frozenset((old_node,)))
        if isinstance(found, Placed):
            return found
        of_all = self._found(workload, request)
        return found if isinstance(of_all, Placed) else of_all

    def _ledger_missing(self) -> Explanation | None:
        ready = self._view.ledger()
        if ready is not None and ready.value.ready:
            return None
        text = "the ledger of all nodes has not been built yet; nothing is placed before"
        tally = ReasonTally(ReasonCode.LEDGER_NOT_READY, 0, text)
        return Explanation(Verdict.UNSCHEDULABLE, text, reasons=(tally,))

    # Writing

    def _place(
        self,
        tx: Transaction,
        workload: Workload,
        status: StatusRecord,
        released: Versioned[Assignment] | None,
    ) -> tuple[Transaction, StatusRecord, Explanation]:
        now = self._clock.now()
        request = self.request_for(workload, status)
        found = self._found(workload, request)
        if not isinstance(found, Placed):
            code = found.reasons[0].code
            waiting = transitions.awaiting(
                status, code, found.summary, now, next_status=WorkloadStatus.PENDING
            )
            return tx.expecting(Key.assignment(workload.id), released), waiting, found
        target = self._target(found, request)
        tx = self._activate(tx)
        if released is not None and released.value.node_id != found.node_id:
            tomb = self._view.tombstone(released.value.node_id, workload.id)
            tx = ledger.move(tx, workload, released, tomb, target, now, call=status.intent)
        else:
            tx = ledger.assign(tx, workload, released, target, now)
        self._reservations.hold(found.node_id, workload.id, target.charge, now)
        seen_on = found.node_id if found.found_copy else ""
        return tx, transitions.assigned(status, now, seen_on), _explained(found)

    def _target(self, found: Placed, request: PlacementRequest) -> Target:
        node = self._view.node(found.node_id)
        assert node is not None, "this is a bug: the fleet has a node that the view lacks"
        return Target(
            node,
            self._view.allocation(found.node_id),
            charge_for(request, node.value),
            found.reason,
        )

    def _resize(
        self,
        tx: Transaction,
        workload: Workload,
        status: StatusRecord,
        assignment: Versioned[Assignment],
    ) -> tuple[Transaction, StatusRecord, Explanation | None]:
        """Grow the share on the node that it is on; a share never shrinks before the new
        revision runs there, since the old one may still be using it."""
        node = self._view.node(assignment.value.node_id)
        if node is None:
            return tx, status, None
        charge = charge_for(self.request_for(workload, status), node.value)
        held = assignment.value.charged
        if charge.fits_in(held):
            return tx.expecting(Key.assignment(workload.id), assignment), status, None
        allocation = self._view.allocation(node.value.id)
        free = node.value.allocatable - (allocation.value.charged if allocation else Resources())
        wanted = charge.larger(held)
        short = (wanted - held).shortfalls(free)
        if not short:
            tx = ledger.recharge(tx, assignment, node, allocation, wanted)
            grown = transitions.resized(status, self._clock.now())
            return tx, grown, None
        return tx, *self._resize_refused(status, node.value.id, wanted - held, free, short)

    def _resize_refused(
        self,
        status: StatusRecord,
        node_id: NodeId,
        growth: Resources,
        free: Resources,
        short: tuple[str, ...],
    ) -> tuple[StatusRecord, Explanation]:
        parts = [
            f"{name} (asks for {growth.get(name)} {unit_of(name)} more, "
            f"{max(0, free.get(name))} free)"
            for name in short
        ]
        text = (
            f"node {node_id} has no room to grow: {', '.join(parts)};"
            " what runs of the old revision goes on"
        )
        code = f"resize:{short[0]}"
        waiting = transitions.awaiting(
            status, code, text, self._clock.now(), next_status=WorkloadStatus.PENDING
        )
        tally = ReasonTally(
            ReasonCode.RESOURCE if short[0] not in set(ReasonCode) else ReasonCode(short[0]),
            1,
            text,
            growth.get(short[0]),
            free.get(short[0]),
            unit_of(short[0]),
        )
        return waiting, Explanation(
            Verdict.DEFERRED,
            text,
            node_id,
            nodes_considered=1,
            reasons=(tally,),
            next_step=GROWS_NEXT,
        )

    def _may_overlap(self, workload: Workload, status: StatusRecord) -> bool:
        """Whether the old copy is worth keeping, and safe to keep, until the new one is healthy."""
        wanted = volumes_wanted(workload.spec, Outcome(self._view)).values()
        return status.status is WorkloadStatus.RUNNING and not any(map(is_exclusive_volume, wanted))

    def _leave(
        self,
        tx: Transaction,
        workload: Workload,
        assignment: Versioned[Assignment],
        status: StatusRecord,
        why: str,
    ) -> Transaction:
        node_id = assignment.value.node_id
        if self._view.node(node_id) is None:
            return ledger.unassign(tx, assignment, self._view.allocation(node_id))
        tomb = self._view.tombstone(node_id, workload.id)
        return ledger.bury(
            tx, workload, assignment, tomb, why, self._clock.now(), call=status.intent
        )

    def _activate(self, tx: Transaction) -> Transaction:
        """The first placement ends the marker's ``fresh`` state (decisions §4, recovery)."""
        marker = self._view.marker()
        if marker is None or marker.value.state is MarkerState.ACTIVE:
            return tx
        active = evolve(marker.value, state=MarkerState.ACTIVE)
        return tx.put(Key.marker(), active, marker)


def _as_released(assignment: Versioned[Assignment]) -> Versioned[Assignment]:
    value = evolve(assignment.value, released=True, charged=Resources())
    return evolve(assignment, value=value)


def _explained(found: Placed) -> Explanation:
    return Explanation(
        Verdict.PLACED,
        found.reason,
        found.node_id,
        found.score,
        found.parts,
        next_step="the node's agent is asked what it runs, and sent only what it does not run"
        if found.found_copy
        else "it is sent to the node's agent",
    )


def _about_others(found: Explanation) -> Explanation:
    """``found`` with what is to be said of nodes that might take the workload first: that the
    node which is being left takes nothing is no news."""
    ordered = sorted(found.reasons, key=lambda tally: tally.code in _OF_THE_NODE_THAT_IS_LEFT)
    return evolve(found, reasons=tuple(ordered))


_OF_THE_NODE_THAT_IS_LEFT = (ReasonCode.DRAINING, ReasonCode.CORDONED, ReasonCode.EXCLUDED)

"""The ledger: how assignments, allocations and tombstones change together, in one commit.

Decided here: which records a change compares and writes, so that the sum of what is committed on
a node never exceeds its capacity and always equals its parts (safety rules 1 and 5). Every
function takes records as they were read and adds to a ``Transaction``; nothing is written here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Self

from attrs import evolve, field, frozen

from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation, Assignment, Intent, Tombstone, Workload
from persys_core.ports.cluster_store import Delete, Expectation, Key, Put, Record, Versioned, Write

__all__ = [
    "LedgerError",
    "Target",
    "Transaction",
    "adopt",
    "assign",
    "bury",
    "end_tombstone",
    "move",
    "recharge",
    "release",
    "unassign",
]


class LedgerError(AssertionError):
    """A ledger change that cannot be right was asked for; nothing was written.

    ``read`` compares what the change was decided on. Where that stands in the store it is a bug in
    the caller; else the caller's view is late and contradicts itself.
    """

    def __init__(self, message: str, read: Transaction) -> None:
        self.read = read
        super().__init__(message)


@frozen
class Target:
    """Where a workload goes: the node and its ledger as they were read, and the charge there."""

    node: Versioned[Node]
    allocation: Versioned[Allocation] | None
    charge: Resources
    reason: str


@frozen
class Transaction:
    """Expectations and writes that a commit will carry; grows by copies.

    ``forced``: what it takes from nodes was not confirmed by them (an operator or a user insists).
    """

    expects: tuple[Expectation, ...] = ()
    writes: tuple[Write, ...] = ()
    forced: bool = False
    _seen: frozenset[Key] = field(default=frozenset(), alias="seen", repr=False)

    def expecting(self, key: Key, stored: Versioned[Record] | None) -> Self:
        """Also compare ``key`` with what was read of it (``None``: it must not exist)."""
        if key in self._seen:
            return self
        expectation = Expectation(key, revision=stored.revision if stored else 0)
        return evolve(self, expects=(*self.expects, expectation), seen=self._seen | {key})

    def put(self, key: Key, value: Record, stored: Versioned[Record] | None) -> Self:
        """Write ``value`` where ``stored`` was read. An equal value is compared, not written."""
        compared = self.expecting(key, stored)
        if stored is not None and stored.value == value:
            return compared
        return evolve(compared, writes=(*compared._without(key), Put(key, value)))

    def delete(self, key: Key, stored: Versioned[Record] | None) -> Self:
        """Remove what was read; nothing where nothing was."""
        compared = self.expecting(key, stored)
        if stored is None:
            return compared
        return evolve(compared, writes=(*compared._without(key), Delete(key)))

    def pending(self, key: Key) -> Record | None:
        """What an earlier step of this transaction writes at ``key``."""
        for write in self.writes:
            if write.key == key and isinstance(write, Put):
                return write.value
        return None

    def _without(self, key: Key) -> tuple[Write, ...]:
        return tuple(write for write in self.writes if write.key != key)


def _allocation(
    tx: Transaction, node_id: NodeId, stored: Versioned[Allocation] | None
) -> Allocation:
    pending = tx.pending(Key.allocation(node_id))
    if isinstance(pending, Allocation):
        return pending
    return stored.value if stored else Allocation(node_id)


def _write_allocation(
    tx: Transaction, changed: Allocation, stored: Versioned[Allocation] | None
) -> Transaction:
    if changed.workload_count < 0 or any(amount < 0 for _, amount in changed.charged):
        raise LedgerError(
            f"the ledger of node {changed.node_id} would fall below zero: {changed}",
            tx.expecting(Key.allocation(changed.node_id), stored),
        )
    return tx.put(Key.allocation(changed.node_id), changed, stored)


def _check_capacity(
    tx: Transaction, node: Node, changed: Allocation, request: Resources
) -> Transaction:
    short = [name for name, _ in request if changed.charged.get(name) > node.allocatable.get(name)]
    if short:
        raise LedgerError(f"node {node.id} has no room left in {', '.join(short)}", tx)
    return tx


def assign(
    tx: Transaction,
    workload: Workload,
    previous: Versioned[Assignment] | None,
    target: Target,
    now: datetime,
) -> Transaction:
    """Give ``workload`` a node and charge it there.

    ``previous`` is the assignment as it stands: none, or a released one (on any node; the caller
    buries what may be left on another node). Compares the node's record, so that a cordon or a
    shrink in between makes this lose.
    """
    if previous is not None and not previous.value.released:
        raise LedgerError(
            f"workload {workload.id} is charged on {previous.value.node_id} already",
            tx.expecting(Key.assignment(workload.id), previous),
        )
    return _give(tx, workload, previous, target, now)


def adopt(
    tx: Transaction,
    workload: Workload,
    previous: Versioned[Assignment] | None,
    target: Target,
    now: datetime,
) -> Transaction:
    """Give ``workload`` the node that it was found running on.

    Its share is taken already, so the node may come out above its capacity: it then gets nothing
    new, is shown as overcommitted, and loses nothing (safety rule 1).
    """
    if previous is not None and previous.value.node_id != target.node.value.id:
        raise LedgerError(
            f"workload {workload.id} is recorded on {previous.value.node_id}",
            tx.expecting(Key.assignment(workload.id), previous),
        )
    if previous is None or previous.value.released:
        return _give(tx, workload, previous, target, now, found=True)
    ledger = _allocation(tx, target.node.value.id, target.allocation)
    held = previous.value
    tx = tx.expecting(Key.node(target.node.value.id), target.node)
    tx = tx.put(Key.assignment(workload.id), evolve(held, charged=target.charge), previous)
    changed = evolve(ledger, charged=ledger.charged - held.charged + target.charge)
    return _write_allocation(tx, changed, target.allocation)


def _give(
    tx: Transaction,
    workload: Workload,
    previous: Versioned[Assignment] | None,
    target: Target,
    now: datetime,
    *,
    found: bool = False,
) -> Transaction:
    node = target.node.value
    charged = _allocation(tx, node.id, target.allocation).charge(target.charge)
    assignment = Assignment(workload.id, workload.uid, node.id, target.charge, target.reason, now)
    tx = tx.expecting(Key.node(node.id), target.node)
    tx = tx.put(Key.assignment(workload.id), assignment, previous)
    tx = _write_allocation(tx, charged, target.allocation)
    return tx if found else _check_capacity(tx, node, charged, target.charge)


def release(
    tx: Transaction,
    assignment: Versioned[Assignment],
    allocation: Versioned[Allocation] | None,
) -> Transaction:
    """Give back the share of a workload that ended, and keep the place of its remains."""
    held = assignment.value
    if held.released:
        return tx
    freed = _allocation(tx, held.node_id, allocation).release(held.charged)
    rested = evolve(held, released=True, charged=Resources())
    tx = tx.put(Key.assignment(held.workload_id), rested, assignment)
    return _write_allocation(tx, freed, allocation)


def unassign(
    tx: Transaction,
    assignment: Versioned[Assignment],
    allocation: Versioned[Allocation] | None,
) -> Transaction:
    """The workload is confirmed gone from its node: remove the assignment, free its share."""
    held = assignment.value
    tx = tx.delete(Key.assignment(held.workload_id), assignment)
    if held.released:
        return tx
    freed = _allocation(tx, held.node_id, allocation).release(held.charged)
    return _write_allocation(tx, freed, allocation)


def bury(
    tx: Transaction,
    workload: Workload,
    assignment: Versioned[Assignment],
    tombstone: Versioned[Tombstone] | None,
    reason: str,
    now: datetime,
    *,
    delete_volumes: bool = False,
    call: Intent | None = None,
) -> Transaction:
    """Take the workload from a node that did not confirm: its share stays charged there.

    The node's allocation does not change: what the assignment held the tombstone holds now.
    ``call``: a call to the node that may still arrive, so that nothing is concluded before.
    """
    held = assignment.value
    grave = _grave(workload, held, tombstone, reason, now, delete_volumes=delete_volumes)
    grave = evolve(grave, intent=_loose(call))
    key = Key.tombstone(held.node_id, held.workload_id)
    tx = tx.delete(Key.assignment(held.workload_id), assignment)
    return tx.put(key, grave, tombstone)


def move(
    tx: Transaction,
    workload: Workload,
    assignment: Versioned[Assignment],
    tombstone: Versioned[Tombstone] | None,
    target: Target,
    now: datetime,
    *,
    call: Intent | None = None,
    start_first: bool = False,
) -> Transaction:
    """Replace the assignment by one on another node, in one commit; both nodes stay charged.

    The old copy is owed a delete by a tombstone, which holds the old share until it is gone;
    with ``start_first`` it runs on until the new one is healthy. ``call``: a call to the old node
    that may still arrive.
    """
    old = assignment.value
    if old.node_id == target.node.value.id:
        raise LedgerError(
            f"workload {workload.id} would move from {old.node_id} to itself",
            tx.expecting(Key.assignment(workload.id), assignment),
        )
    why = f"moved to {target.node.value.id}"
    grave = evolve(
        _grave(workload, old, tombstone, why, now),
        intent=_loose(call),
        after_healthy=start_first,
    )
    tx = tx.put(Key.tombstone(old.node_id, old.workload_id), grave, tombstone)
    return _give(tx, workload, assignment, target, now)


def _loose(call: Intent | None) -> Intent | None:
    """The call as nobody waits for its answer any more."""
    return evolve(call, unanswered=True) if call else None


def _grave(
    workload: Workload,
    held: Assignment,
    tombstone: Versioned[Tombstone] | None,
    reason: str,
    now: datetime,
    *,
    delete_volumes: bool = False,
) -> Tombstone:
    """The tombstone; it also takes over what an older one of the same id still holds there."""
    older = tombstone.value if tombstone else None
    return Tombstone(
        node_id=held.node_id,
        workload_id=held.workload_id,
        uid=held.uid,
        revision_id=workload.revision_id,
        held=held.charged + older.held if older else held.charged,
        created_at=now,
        reason=reason,
        shares=(older.shares if older else 0) + (0 if held.released else 1),
        delete_volumes=delete_volumes,
    )


def end_tombstone(
    tx: Transaction,
    tombstone: Versioned[Tombstone],
    allocation: Versioned[Allocation] | None,
) -> Transaction:
    """The owed delete is confirmed, or dropped by an operator: free the share."""
    grave = tombstone.value
    tx = tx.delete(Key.tombstone(grave.node_id, grave.workload_id), tombstone)
    freed = _allocation(tx, grave.node_id, allocation).release(grave.held, grave.shares)
    return _write_allocation(tx, freed, allocation)


def recharge(
    tx: Transaction,
    assignment: Versioned[Assignment],
    node: Versioned[Node],
    allocation: Versioned[Allocation] | None,
    charge: Resources,
) -> Transaction:
    """Change what a running workload is charged with on its node (a resize that fits)."""
    held = assignment.value
    ledger = _allocation(tx, held.node_id, allocation)
    changed = evolve(ledger, charged=ledger.charged - held.charged + charge)
    grown = Resources({name: amount for name, amount in charge if amount > held.charged.get(name)})
    tx = tx.expecting(Key.node(held.node_id), node)
    tx = tx.put(Key.assignment(held.workload_id), evolve(held, charged=charge), assignment)
    tx = _write_allocation(tx, changed, allocation)
    return _check_capacity(tx, node.value, changed, grown)

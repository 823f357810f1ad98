"""Rules 1, 2 (in the store) and 5: capacity, one assignment, and the ledger as a sum."""

from __future__ import annotations

from collections.abc import Iterator

from persys_core.model.ids import NodeId
from persys_core.model.workload import Allocation, Assignment
from persys_core.ports.cluster_store import Kind
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.sim.mirror import Charges, Step, Touched

__all__ = ["capacity", "ledger", "ledger_in_full", "one_assignment"]


def capacity(scene: Scene, step: Step) -> Iterator[Finding]:
    """Rule 1: no commit raises what is committed on a node above what the node can give.

    Added up from assignments and tombstones, not read from the allocation record, so that a lost
    update of that record hides nothing. What stands above capacity already may stay or shrink.
    """
    for node_id, (before, after) in step.charges.items():
        node = scene.mirror.node(node_id)
        for name, amount in after.charged:
            limit = node.allocatable.get(name) if node else 0
            if amount > limit and amount > before.charged.get(name):
                yield Finding(
                    Rule.CAPACITY,
                    f"{name} of {node_id} rose from {before.charged.get(name)} to {amount},"
                    f" and it has {limit}",
                    (node_id, *_workloads_in(step)),
                )


def one_assignment(scene: Scene, step: Step) -> Iterator[Finding]:
    """Rule 2, in the store: a node that a workload was taken from owes a delete, or is free of it.

    There is one assignment record per workload, so two live ones can only come about by leaving a
    node that still runs the workload without a tombstone. A forced delete is the user's own word.
    """
    for change in step.touched:
        before, after = change.before, change.after
        if not isinstance(before, Assignment) or not _left(before, after):
            continue
        node, workload = before.node_id, before.workload_id
        if scene.mirror.tombstone(node, workload) or scene.mirror.node(node) is None:
            continue
        if workload in scene.running.get(node, {}) and not _is_excused(scene, node, workload):
            yield Finding(
                Rule.ONE_COPY,
                f"the assignment to {node} ended without a tombstone, and {node} still runs it",
                (workload, node),
            )


def ledger(scene: Scene, step: Step) -> Iterator[Finding]:
    """Rule 5, where a commit touched it: the allocation record is the sum of its parts."""
    nodes = set(step.charges)
    nodes.update(change.key.id for change in step.touched if change.key.kind is Kind.ALLOCATION)
    for node_id in sorted(nodes):
        yield from _compared(scene, node_id, scene.mirror.charges(node_id))


def ledger_in_full(scene: Scene) -> Iterator[Finding]:
    """Rule 5 over everything, added up anew."""
    counted = scene.mirror.recount()
    recorded = {record.node_id for record in scene.mirror.values(Kind.ALLOCATION, Allocation)}
    for node_id in sorted(counted.keys() | recorded):
        yield from _compared(scene, node_id, counted.get(node_id, Charges()))


def _compared(scene: Scene, node_id: NodeId, counted: Charges) -> Iterator[Finding]:
    recorded = scene.mirror.allocation(node_id)
    if (recorded.charged, recorded.workload_count) != (counted.charged, counted.shares):
        yield Finding(
            Rule.LEDGER,
            f"{node_id} records {dict(recorded.charged)} for {recorded.workload_count} shares;"
            f" its parts are {dict(counted.charged)} for {counted.shares}",
            (node_id,),
        )


def _left(before: Assignment, after: object) -> bool:
    return not isinstance(after, Assignment) or after.node_id != before.node_id


def _is_excused(scene: Scene, node_id: NodeId, workload_id: str) -> bool:
    return scene.wishes.was_forced(workload_id) or (node_id, workload_id) in scene.strays


def _workloads_in(step: Step) -> tuple[str, ...]:
    return tuple(
        _subject(change)
        for change in step.touched
        if change.key.kind in (Kind.ASSIGNMENT, Kind.WORKLOAD)
    )


def _subject(change: Touched) -> str:
    return change.key.id

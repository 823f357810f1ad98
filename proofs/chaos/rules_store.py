"""The rules that one revision of etcd is held against, as soon as it is seen.

Pure functions over what the revision changed; they know nothing of how a scheduler works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import field, frozen

from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.workload import Assignment, Tombstone, Workload
from persys_core.ports.cluster_store import Key, Kind
from persys_core.sim.invariants import Rule
from persys_core.sim.invariants_calls import new_intents
from persys_core.sim.mirror import Step, Touched
from proofs.chaos.picture import Picture
from proofs.chaos.promises import GONE, Promises, generation_of
from proofs.chaos.violations import Violation

__all__ = ["Before", "broken_by"]


@frozen
class Before:
    """What stood before the revision that is judged, since its commit was held against that.

    ``newest``: the highest epoch that anything was announced under on each node.
    """

    epochs: frozenset[int]
    newest: Mapping[NodeId, int] = field(factory=dict)


def broken_by(
    step: Step, picture: Picture, before: Before, promises: Promises
) -> Iterator[Violation]:
    """Every rule of this module; ``picture`` stands at the step's revision."""
    yield from capacity(step, picture)
    yield from ledger(step, picture)
    yield from current_epoch(step, before)
    for change in step.touched:
        yield from _lost(step, change, promises)
        yield from _undone(step, change, picture, promises)
        yield from _homeless(step, change)


def capacity(step: Step, picture: Picture) -> Iterator[Violation]:
    """Rule 1: nothing raises what a node is charged with above what it can give."""
    for node_id, (old, new) in step.charges.items():
        node = picture.node(node_id)
        for name, amount in new.charged:
            limit = node.allocatable.get(name) if node else 0
            if amount > limit and amount > old.charged.get(name):
                yield _violation(
                    Rule.CAPACITY,
                    f"{name} of {node_id} rose from {old.charged.get(name)} to {amount} of {limit}",
                    step,
                    node_id,
                )


def ledger(step: Step, picture: Picture) -> Iterator[Violation]:
    """Rule 5: the allocation record is the sum of assignments and shares of tombstones."""
    nodes = set(step.charges)
    nodes.update(change.key.id for change in step.touched if change.key.kind is Kind.ALLOCATION)
    for node_id in sorted(nodes):
        recorded, counted = picture.allocation(node_id), picture.charges(node_id)
        if (recorded.charged, recorded.workload_count) != (counted.charged, counted.shares):
            yield _violation(
                Rule.LEDGER,
                f"{node_id} records {dict(recorded.charged)} for {recorded.workload_count} shares;"
                f" its parts are {dict(counted.charged)} for {counted.shares}",
                step,
                node_id,
            )


def current_epoch(step: Step, before: Before) -> Iterator[Violation]:
    """Rule 3, at the commit: a call is announced by whoever leads at that revision, and by nobody
    who acted for the node before another one did."""
    for workload_id, intent in new_intents(step):
        newest, wrong = before.newest.get(intent.node_id, 0), ""
        if intent.epoch not in before.epochs:
            wrong = f"{', '.join(map(str, sorted(before.epochs))) or 'nobody'} leads"
        elif intent.epoch < newest:
            wrong = f"{newest} acts for {intent.node_id}"
        if wrong:
            yield _violation(
                Rule.INTENT,
                f"{intent.action} was announced under epoch {intent.epoch} while {wrong}",
                step,
                workload_id,
                intent.node_id,
            )


def _lost(step: Step, change: Touched, promises: Promises) -> Iterator[Violation]:
    """Rule 6, at once: a node goes, or a workload changes, and nobody asked for that."""
    if isinstance(change.before, Node) and change.after is None:
        yield _violation(Rule.NOTHING_LOST, "the node's record went", step, change.key.id)
    if change.key.kind is not Kind.WORKLOAD:
        return
    after = change.after if isinstance(change.after, Workload) else None
    found = generation_of(after)
    if not promises.was_asked(change.key.id, found):
        became = "went" if found == GONE else f"became generation {found}"
        yield _violation(
            Rule.NOTHING_LOST, f"it {became} and nobody asked for that", step, change.key.id
        )


def _undone(
    step: Step, change: Touched, picture: Picture, promises: Promises
) -> Iterator[Violation]:
    """Rule 6: what was changed or deleted is as before again, and no late request explains that."""
    if not isinstance(change.after, Workload):
        return
    workload_id, found = change.key.id, generation_of(change.after)
    known = generation_of(change.before) if isinstance(change.before, Workload) else GONE
    if found == GONE or promises.is_doubtful(workload_id, found, step.at):
        return
    was_deleted = isinstance(change.before, Workload) and known == GONE
    if was_deleted or change.key in picture.removed or found < known:
        earlier = f"generation {known}" if known != GONE else "a deletion"
        yield _violation(
            Rule.NOTHING_LOST, f"{earlier} was undone by generation {found}", step, workload_id
        )


def _homeless(step: Step, change: Touched) -> Iterator[Violation]:
    """Rule 2, in etcd: a workload leaves one node for another only with a delete owed there."""
    before, after = change.before, change.after
    if not isinstance(before, Assignment) or not isinstance(after, Assignment):
        return
    if before.node_id == after.node_id or before.released:
        return
    grave = Key.tombstone(before.node_id, before.workload_id)
    if not any(each.key == grave and isinstance(each.after, Tombstone) for each in step.touched):
        yield _violation(
            Rule.ONE_COPY,
            f"it went from {before.node_id} to {after.node_id} with no delete owed there",
            step,
            before.workload_id,
            before.node_id,
        )


def _violation(rule: Rule, text: str, step: Step, *subjects: str) -> Violation:
    return Violation(
        rule, text, step.at, step.revision, subjects, tuple(each.after for each in step.touched)
    )

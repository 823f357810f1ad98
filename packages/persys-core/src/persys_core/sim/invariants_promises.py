"""Rule 6: what was acknowledged stands in the store for ever after, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

from persys_core.model.node import Node
from persys_core.model.workload import Workload
from persys_core.ports.cluster_store import Kind
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.sim.mirror import Step

__all__ = ["promise", "promises", "promises_in_full"]


def promises(scene: Scene, step: Step) -> Iterator[Finding]:
    """Rule 6, where a commit touched it: the record is what its user was promised."""
    for change in step.touched:
        if change.key.kind is Kind.WORKLOAD:
            after = change.after if isinstance(change.after, Workload) else None
            yield from _workload(scene, change.key.id, after)
        elif change.key.kind is Kind.NODE:
            node = change.after if isinstance(change.after, Node) else None
            yield from _node(scene, change.key.id, node)


def promise(scene: Scene, subject: str) -> Iterator[Finding]:
    """Rule 6 for one workload or node."""
    if subject in scene.wishes.nodes():
        yield from _node(scene, subject, scene.mirror.node(subject))
    else:
        yield from _workload(scene, subject, scene.mirror.workload(subject))


def promises_in_full(scene: Scene) -> Iterator[Finding]:
    """Rule 6 over everything that users, operators and agents were ever promised."""
    for workload_id in scene.wishes.of_all():
        yield from _workload(scene, workload_id, scene.mirror.workload(workload_id))
    for node_id in scene.wishes.nodes():
        yield from _node(scene, node_id, scene.mirror.node(node_id))


def _workload(scene: Scene, workload_id: str, stored: Workload | None) -> Iterator[Finding]:
    if wrong := scene.wishes.contradiction(workload_id, stored):
        yield Finding(Rule.NOTHING_LOST, wrong, (workload_id,))


def _node(scene: Scene, node_id: str, stored: Node | None) -> Iterator[Finding]:
    if wrong := scene.wishes.node_contradiction(node_id, stored):
        yield Finding(Rule.NOTHING_LOST, wrong, (node_id,))

"""What the simulated users and operators were promised: the truth that the store is held against.

Decided here: which states of a record are right, given the answers that its user got. A request
that was acknowledged leaves one right state. One that failed without saying whether it took effect
leaves two. Each record has one user at a time, so nothing else may change a wish.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from attrs import frozen

from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.states import DesiredState
from persys_core.model.workload import Workload

__all__ = ["ABSENT", "Wish", "Wishes", "wish_of"]


@frozen
class Wish:
    """A workload as its user wants it."""

    revision_id: RevisionId
    desired_state: DesiredState


ABSENT = None
"""No record: never created, or its deletion is through."""
Possible: TypeAlias = frozenset[Wish | None]
PossibleNode: TypeAlias = frozenset[bool | None]
"""Whether a node may be cordoned, or ``ABSENT``."""


def wish_of(workload: Workload | None) -> Wish | None:
    """The wish that a stored record stands for."""
    return Wish(workload.revision_id, workload.desired_state) if workload else ABSENT


class Wishes:
    """The right states of every workload and node that users and operators touched.

    Size: a request about a workload or a node begins, ends in three ways, and is asked about.
    """

    def __init__(self) -> None:
        self._workloads: dict[WorkloadId, Possible] = {}
        self._nodes: dict[NodeId, PossibleNode] = {}
        self._removals: Counter[NodeId] = Counter()
        self._registered: set[NodeId] = set()
        self._forced: set[WorkloadId] = set()

    # Workloads

    def possible(self, workload_id: WorkloadId) -> Possible:
        """The states that the record may have now."""
        return self._workloads.get(workload_id, frozenset({ABSENT}))

    def may_become(self, workload_id: WorkloadId, *wishes: Wish | None) -> Possible:
        """A request is under way; the answer is what was possible before it."""
        before = self.possible(workload_id)
        self._workloads[workload_id] = before | set(wishes)
        return before

    def became(self, workload_id: WorkloadId, *wishes: Wish | None) -> None:
        """The request was acknowledged: nothing else is right from now on."""
        self._workloads[workload_id] = frozenset(wishes)

    def did_not(self, workload_id: WorkloadId, before: Possible) -> None:
        """The request was refused, so it changed nothing."""
        self._workloads[workload_id] = before

    def force(self, workload_id: WorkloadId) -> None:
        """The user gave up what may be left of the workload on its nodes."""
        self._forced.add(workload_id)

    def expect_no_rest(self, workload_id: WorkloadId) -> None:
        """The node that had it answers, and owes its delete: nothing was given up."""
        self._forced.discard(workload_id)

    def was_forced(self, workload_id: WorkloadId) -> bool:
        """Whether copies without a record are the user's own doing."""
        return workload_id in self._forced

    def wants_delete(self, workload_id: WorkloadId) -> bool:
        """Whether its user asked for the deletion of the workload, or of the life before. What
        nobody ever named is nobody's to delete."""
        return workload_id in self._workloads and any(
            wish is ABSENT or wish.desired_state is DesiredState.DELETED
            for wish in self.possible(workload_id)
        )

    def wants_stop(self, workload_id: WorkloadId) -> bool:
        """Whether its user asked for it to rest."""
        return any(
            wish is not ABSENT and wish.desired_state is DesiredState.STOPPED
            for wish in self.possible(workload_id)
        )

    def contradiction(self, workload_id: WorkloadId, stored: Workload | None) -> str:
        """How the stored record differs from everything that is right; empty where it is right."""
        found = wish_of(stored)
        if found in self.possible(workload_id):
            return ""
        return f"the store has {_text(found)}, its user was promised {self._promise(workload_id)}"

    def of_all(self) -> tuple[WorkloadId, ...]:
        """Every workload that a user ever named."""
        return tuple(self._workloads)

    # Nodes

    def may_register(self, node_id: NodeId) -> int:
        """Its agent asks for it; the answer says whether a removal comes in between."""
        possible = self._of_node(node_id)
        self._nodes[node_id] = possible | {False} if ABSENT in possible else possible
        return self._removals[node_id]

    def registered(self, node_id: NodeId, asked: int = 0) -> None:
        """The registration was accepted; ``asked``: the answer of ``may_register``."""
        self._registered.add(node_id)
        self.may_register(node_id)
        if asked == self._removals[node_id]:
            self._nodes[node_id] -= {ABSENT}

    def may_cordon(self, node_id: NodeId, cordoned: bool) -> PossibleNode:
        """An operator asks for it; the answer is what was possible before."""
        before = self._of_node(node_id)
        self._nodes[node_id] = before | {cordoned}
        return before

    def set_cordon(self, node_id: NodeId, cordoned: bool) -> None:
        """The operator's word was acknowledged."""
        self._nodes[node_id] = frozenset({cordoned})

    def may_remove(self, node_id: NodeId) -> PossibleNode:
        """An operator asks for it; one whose agent lives registers again, as a new node."""
        before = self._of_node(node_id)
        self._removals[node_id] += 1
        self._nodes[node_id] = before | {ABSENT, False}
        return before

    def removed(self, node_id: NodeId) -> None:
        """The removal was acknowledged."""
        self._removals[node_id] += 1
        self._nodes[node_id] = frozenset({ABSENT, False})

    def left_alone(self, node_id: NodeId, before: PossibleNode, *asked: bool | None) -> None:
        """The operator's word was refused: nothing that was ``asked`` for came about by it."""
        self._nodes[node_id] = self._of_node(node_id) - (frozenset(asked) - before)

    def node_contradiction(self, node_id: NodeId, stored: Node | None) -> str:
        """How the stored node differs from what its operator and its agent were promised."""
        found = stored.intent.cordoned if stored else ABSENT
        if found in self._of_node(node_id):
            return ""
        if stored is None:
            return "it registered and has no record"
        return f"cordoned is {stored.intent.cordoned}, its operator was promised otherwise"

    def nodes(self) -> tuple[NodeId, ...]:
        """Every node that was ever registered, in order of id."""
        return tuple(sorted(self._registered))

    def _of_node(self, node_id: NodeId) -> PossibleNode:
        return self._nodes.get(node_id, frozenset({ABSENT}))

    def _promise(self, workload_id: WorkloadId) -> str:
        return " or ".join(sorted(map(_text, self.possible(workload_id))))


def _text(wish: Wish | None) -> str:
    return "nothing" if wish is ABSENT else f"{wish.desired_state} {wish.revision_id[:8]}"

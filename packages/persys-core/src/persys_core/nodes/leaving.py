"""What must leave a node, in which order, and what is owed first.

Decided here: whether a workload on a node is to move away now (a drain, or a NoExecute taint that
it does not tolerate), and whether it may be stopped there for want of a better place. Not decided
here: where it goes (placement), and how a move is written (``placement.ledger``). Pure.

* Ordinary workloads leave first, node-system ones (``persys.scheduling.node_system``) last.
* At most ``AT_ONCE`` moves of one node are under way at a time.
* Stateless work starts its replacement first; what holds an exclusive volume stops first.
* What has no other place stays and says so. At the deadline it stays, or with force is stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from persys_core.model.constraints import PREFIX, parse_constraints
from persys_core.model.node import Node, Taint
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import TaintEffect
from persys_core.placement.filters.taints import tolerates

__all__ = [
    "AT_ONCE",
    "LEAVING_RULES",
    "Leaving",
    "LeavingFacts",
    "LeavingRule",
    "NodeLoad",
    "is_node_system",
    "is_throwing_out",
    "leaving_of",
]

AT_ONCE = 10
NODE_SYSTEM_KEY = PREFIX + "node_system"


class Leaving(StrEnum):
    """Whether a workload has to leave its node."""

    STAYS = "stays"
    WAITS = "waits"
    """It must leave, and others go first."""
    MOVES = "moves"
    """It must leave; where no other node takes it, it stays."""
    MUST = "must"
    """It must leave now, to another node or to none."""


@frozen
class NodeLoad:
    """What is on a node: ordinary workloads that must still leave, and moves under way."""

    ordinary: int = 0
    moves: int = 0


@frozen
class LeavingFacts:
    """What decides whether a workload leaves its node now."""

    unwelcome: bool
    """Its node is drained, or bears a NoExecute taint that it does not tolerate."""
    others_first: bool
    """It is a node-system workload, and ordinary ones have not left yet."""
    out_of_time: bool
    """The deadline of a forced drain has passed."""
    moves_enough: bool
    """As many moves of its node are under way as may be at a time."""


@frozen
class LeavingRule:
    """One row: under which condition which verdict, and why, in a sentence for people."""

    name: str
    when: Callable[[LeavingFacts], bool]
    verdict: Leaving
    because: str


LEAVING_RULES: tuple[LeavingRule, ...] = (
    LeavingRule("welcome", lambda f: not f.unwelcome, Leaving.STAYS, "nothing asks it to go"),
    LeavingRule(
        "others-first",
        lambda f: f.others_first,
        Leaving.WAITS,
        "others on the node may need it until they have left",
    ),
    LeavingRule(
        "out-of-time",
        lambda f: f.out_of_time,
        Leaving.MUST,
        "the operator said by when the node must be empty, whatever it costs",
    ),
    LeavingRule(
        "in-turn", lambda f: f.moves_enough, Leaving.WAITS, "a node is emptied a few at a time"
    ),
    LeavingRule("leave", lambda _: True, Leaving.MOVES, "it goes where another node takes it"),
)


def leaving_of(node: Node, spec: WorkloadSpec, load: NodeLoad, now: datetime) -> Leaving:
    """Whether a workload of ``spec``, which runs on ``node``, is to leave at ``now``."""
    facts = LeavingFacts(
        unwelcome=_is_unwelcome(node, spec),
        others_first=is_node_system(spec) and load.ordinary > 0,
        out_of_time=is_throwing_out(node, now),
        moves_enough=load.moves >= AT_ONCE,
    )
    return next(rule.verdict for rule in LEAVING_RULES if rule.when(facts))


def is_throwing_out(node: Node, now: datetime) -> bool:
    """Whether the deadline of a forced drain is over: what is left goes, healthy elsewhere or not,
    old copies that wait for their replacement too."""
    order = node.intent.drain
    if order is None or order.deadline_at is None:
        return False
    return order.force and now >= order.deadline_at


def _is_unwelcome(node: Node, spec: WorkloadSpec) -> bool:
    return node.intent.draining or _evicting_taint(node, spec) is not None


def _evicting_taint(node: Node, spec: WorkloadSpec) -> Taint | None:
    tolerations = parse_constraints(spec.metadata).tolerations
    return next(
        (
            taint
            for taint in node.intent.taints
            if taint.effect is TaintEffect.NO_EXECUTE
            and not any(tolerates(toleration, taint) for toleration in tolerations)
        ),
        None,
    )


def is_node_system(spec: WorkloadSpec) -> bool:
    """Whether others on its node need it until they have left."""
    return spec.metadata.get(NODE_SYSTEM_KEY, "").strip().lower() in ("true", "1", "yes")

"""What must leave a node: the table row by row, and the facts that it looks at."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product

import pytest
from attrs import evolve

from persys_core.model.node import DrainOrder, Node, OperatorIntent, Taint
from persys_core.model.states import TaintEffect
from persys_core.nodes.leaving import (
    AT_ONCE,
    LEAVING_RULES,
    Leaving,
    LeavingFacts,
    NodeLoad,
    leaving_of,
)
from tests.builders import START, container, make_node

SYSTEM = container(metadata={"persys.scheduling.node_system": "true"})
DEADLINE = START + timedelta(minutes=5)
LATE = DEADLINE + timedelta(seconds=1)


def drained(*, force: bool = False, deadline: bool = True) -> Node:
    """A node that an operator drains."""
    order = DrainOrder(START, DEADLINE if deadline else None, force)
    return evolve(make_node(), intent=OperatorIntent(draining=True, drain=order))


def test_every_row_decides_something() -> None:
    """Each row of the table is the first that holds for some facts, and the last always does."""
    firsts = set()
    for values in product((False, True), repeat=4):
        facts = LeavingFacts(*values)
        firsts.add(next(rule.name for rule in LEAVING_RULES if rule.when(facts)))
    assert firsts == {rule.name for rule in LEAVING_RULES}


@pytest.mark.parametrize(
    ("node", "load", "now", "expected"),
    [
        (make_node(), NodeLoad(), START, Leaving.STAYS),
        (drained(), NodeLoad(ordinary=1), START, Leaving.MOVES),
        (drained(), NodeLoad(1, moves=AT_ONCE - 1), START, Leaving.MOVES),
        (drained(), NodeLoad(1, moves=AT_ONCE), START, Leaving.WAITS),
        (drained(), NodeLoad(ordinary=1), LATE, Leaving.MOVES),
        (drained(force=True), NodeLoad(ordinary=1), START, Leaving.MOVES),
        (drained(force=True), NodeLoad(ordinary=1), LATE, Leaving.MUST),
        (drained(force=True), NodeLoad(1, moves=AT_ONCE), LATE, Leaving.MUST),
        (drained(force=True, deadline=False), NodeLoad(ordinary=1), LATE, Leaving.MOVES),
    ],
)
def test_ordinary_work(node: Node, load: NodeLoad, now: datetime, expected: Leaving) -> None:
    """It moves a few at a time, and must go only at the deadline of a forced drain."""
    assert leaving_of(node, container(), load, now) is expected


def test_node_system_work_leaves_last() -> None:
    """It waits while ordinary work is there, even past a deadline, and then goes like any other."""
    assert leaving_of(drained(force=True), SYSTEM, NodeLoad(ordinary=1), LATE) is Leaving.WAITS
    assert leaving_of(drained(), SYSTEM, NodeLoad(ordinary=0), START) is Leaving.MOVES


@pytest.mark.parametrize(
    ("effect", "tolerations", "expected"),
    [
        (TaintEffect.NO_EXECUTE, "", Leaving.MOVES),
        (TaintEffect.NO_EXECUTE, "other", Leaving.MOVES),
        (TaintEffect.NO_EXECUTE, "gpu", Leaving.STAYS),
        (TaintEffect.NO_SCHEDULE, "", Leaving.STAYS),
        (TaintEffect.PREFER_NO_SCHEDULE, "", Leaving.STAYS),
    ],
)
def test_only_no_execute_moves_what_runs(
    effect: TaintEffect, tolerations: str, expected: Leaving
) -> None:
    """A taint of another effect, and a tolerated one, leave alone what runs."""
    node = evolve(make_node(), intent=OperatorIntent(taints=(Taint("gpu", effect=effect),)))
    spec = container(metadata={"persys.scheduling.tolerations": tolerations})
    assert leaving_of(node, spec, NodeLoad(ordinary=1), START) is expected

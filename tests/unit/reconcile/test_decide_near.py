"""The reconcile table close to where it sends: every pair of facts that could be otherwise.

Random situations seldom come near a send, since a dozen facts must hold at once for one. So each
send is taken, and all situations that differ from it in one or two facts are walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import combinations
from typing import Any, get_type_hints

import pytest
from attrs import evolve

from persys_core.model.states import ObservedState
from persys_core.nodes.liveness import NodeCondition
from persys_core.reconcile.actions import Action
from persys_core.reconcile.decide import decide
from persys_core.reconcile.situation import Charge, Outlook, Situation

SENDS = {Action.APPLY_RUNNING, Action.TELL_AGAIN, Action.APPLY_STOPPED, Action.DELETE}
ASKED = Situation(
    Outlook.RUN, Charge.CHARGED, NodeCondition.READY, ObservedState.MISSING, confirmed=True,
    sent_here=True,
)  # fmt: skip
AT_WORK = evolve(ASKED, observed=ObservedState.RUNNING)
FACTS: dict[str, Any] = get_type_hints(Situation)
BASES = [
    pytest.param(ASKED, Action.APPLY_RUNNING, id="again"),
    pytest.param(evolve(ASKED, sent_here=False, confirmed=False), Action.APPLY_RUNNING, id="first"),
    pytest.param(AT_WORK, Action.APPLY_RUNNING, id="update"),
    pytest.param(evolve(AT_WORK, outlook=Outlook.STOP), Action.APPLY_STOPPED, id="stop"),
    pytest.param(evolve(AT_WORK, outlook=Outlook.HALTED), Action.APPLY_STOPPED, id="halt"),
    pytest.param(evolve(AT_WORK, outlook=Outlook.DELETE), Action.DELETE, id="delete"),
]


def near(base: Situation) -> Iterator[Situation]:
    """``base``, and all that differs from it in one or two facts."""
    others: list[dict[str, Any]] = [
        {name: value}
        for name, kind in FACTS.items()
        for value in (kind if issubclass(kind, Enum) else (False, True))
        if value != getattr(base, name)
    ]
    yield base
    yield from (evolve(base, **change) for change in others)
    for one, other in combinations(others, 2):
        yield evolve(base, **one | other)


@pytest.mark.parametrize(("base", "action"), BASES)
def test_nothing_is_sent_that_should_not_be(base: Situation, action: Action) -> None:
    """Safety 3 and 4, decisions §2.3 and §2.4, defect J12: a send needs a ready node without a call
    or task under way; what was sent before also a present answer of its agent and its time; a start
    also its share and its retry."""
    assert decide(base).action is action
    for situation in near(base):
        sent = decide(situation).action
        if sent not in SENDS:
            continue
        assert situation.node is NodeCondition.READY
        assert not situation.call_underway
        if situation.sent_here or sent is Action.DELETE:
            assert situation.confirmed
            assert not situation.task_in_flight
        if sent is Action.APPLY_RUNNING:
            assert situation.charge is Charge.CHARGED
            assert situation.retry_due
            assert situation.reapply_due or not situation.sent_here
            assert not situation.old_copy or situation.sent_here

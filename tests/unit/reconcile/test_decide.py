"""The reconcile table: total, and safe in every row."""

from itertools import product
from typing import Any

import pytest
from attrs import evolve, fields
from hypothesis import given
from hypothesis import strategies as st

from persys_core.model.states import ObservedState
from persys_core.nodes.liveness import NodeCondition
from persys_core.reconcile.actions import Action
from persys_core.reconcile.decide import RULES, decide
from persys_core.reconcile.situation import AT_REST, Charge, Outlook, Situation

SENDS = {Action.APPLY_RUNNING, Action.TELL_AGAIN, Action.APPLY_STOPPED, Action.DELETE}
BOOLEANS = [each.name for each in fields(Situation) if each.type in (bool, "bool")]
SITUATIONS = st.builds(
    Situation,
    outlook=st.sampled_from(Outlook),
    charge=st.sampled_from(Charge),
    node=st.sampled_from(NodeCondition),
    observed=st.sampled_from(ObservedState),
    **{name: st.booleans() for name in BOOLEANS},
)


def test_every_outlook_has_a_last_word() -> None:
    """Total: each table ends with a rule that always holds."""
    for outlook in Outlook:
        last = RULES[outlook][-1]
        anything = Situation(outlook, Charge.CHARGED, NodeCondition.READY, ObservedState.UNKNOWN)
        assert last.when(anything)
        everything: dict[str, Any] = dict.fromkeys(BOOLEANS, True)
        assert last.when(evolve(anything, **everything))


def test_rule_names_are_unique_and_reasoned() -> None:
    """Every row can be told from the others and says why it is there."""
    for rules in RULES.values():
        names = [rule.name for rule in rules]
        assert len(set(names)) == len(names)
        assert all(rule.because for rule in rules)


@pytest.mark.parametrize(
    ("outlook", "observed"), list(product(Outlook, ObservedState)), ids=lambda each: each.value
)
def test_every_pair_has_an_action(outlook: Outlook, observed: ObservedState) -> None:
    """R04: every desired with every observed state gives one defined action, for every standing
    in the ledger and every condition of the node."""
    for charge, node, confirmed in product(Charge, NodeCondition, (False, True)):
        rule = decide(Situation(outlook, charge, node, observed, confirmed=confirmed))
        assert rule.action in Action


@pytest.mark.slow
@given(SITUATIONS)
def test_nothing_is_sent_while_a_call_may_arrive(situation: Situation) -> None:
    """An unanswered call, or another leader's, is waited for before anything is sent."""
    if situation.call_underway:
        assert decide(situation).action not in SENDS


@given(SITUATIONS)
def test_nothing_is_sent_to_a_node_that_is_not_ready(situation: Situation) -> None:
    """Only a ready node is sent anything."""
    if situation.node is not NodeCondition.READY:
        assert decide(situation).action not in SENDS


@given(SITUATIONS)
def test_no_retry_and_no_reapply_before_its_time(situation: Situation) -> None:
    """Safety 4: an apply needs the retry to be due, and the guard to be over for what was sent
    here before."""
    if decide(situation).action is Action.APPLY_RUNNING:
        assert situation.retry_due
        assert situation.reapply_due or not situation.sent_here


@given(SITUATIONS)
def test_what_was_sent_before_is_asked_about_first(situation: Situation) -> None:
    """Decisions §2.3: a second apply follows a present answer of the agent, without a task."""
    action = decide(situation).action
    if action is Action.DELETE or (action in SENDS and situation.sent_here):
        assert situation.confirmed
        assert not situation.task_in_flight


@given(SITUATIONS)
def test_only_a_charged_workload_is_started(situation: Situation) -> None:
    """Nothing runs that the ledger does not hold in full."""
    if decide(situation).action is Action.APPLY_RUNNING:
        assert situation.charge is Charge.CHARGED


@given(SITUATIONS)
def test_pinned_work_never_moves(situation: Situation) -> None:
    """Local data keeps a workload on its node however long that is lost."""
    if situation.pinned and situation.node is NodeCondition.LOST:
        assert decide(situation).action is not Action.RESCHEDULE


@given(SITUATIONS)
def test_a_node_that_is_too_small_is_left_by_nothing_that_runs(situation: Situation) -> None:
    """The agent itself said that the old revision rests, and nothing else holds it there."""
    if decide(situation).action is Action.OUTGROW:
        assert situation.charge is Charge.SHORT
        assert situation.observed in AT_REST
        assert situation.confirmed
        assert situation.node is NodeCondition.READY
        assert not any((situation.pinned, situation.task_in_flight, situation.call_underway))


@pytest.mark.parametrize("observed", sorted(AT_REST))
def test_what_rests_and_cannot_grow_is_asked_about_and_leaves(observed: ObservedState) -> None:
    """A listing only has the agent asked; data, and the missing grace, have it wait for room."""
    short = Situation(Outlook.RUN, Charge.SHORT, NodeCondition.READY, observed)
    assert decide(short).name == "run-outgrown-look"
    assert decide(evolve(short, confirmed=True)).name == "run-outgrown"
    assert decide(evolve(short, confirmed=True, pinned=True)).name == "run-resize"
    lately = decide(evolve(short, confirmed=True, within_missing_grace=True)).name
    missing = observed is ObservedState.MISSING
    assert lately == ("run-resize" if missing else "run-outgrown")


@given(SITUATIONS)
def test_records_go_only_when_nothing_is_left(situation: Situation) -> None:
    """A delete is final only where no node has it, or its agent confirmed it."""
    if decide(situation).action is Action.FINALIZE_DELETE:
        nowhere = situation.charge is Charge.UNASSIGNED or situation.node is NodeCondition.GONE
        confirmed = situation.confirmed and situation.observed is ObservedState.MISSING
        assert nowhere or confirmed


@given(SITUATIONS)
def test_settled_costs_nothing(situation: Situation) -> None:
    """What runs as wished and is recorded is left alone."""
    runs = evolve(
        situation,
        outlook=Outlook.RUN,
        charge=Charge.CHARGED,
        node=NodeCondition.READY,
        observed=ObservedState.RUNNING,
        revision_matches=True,
        recorded=True,
        call_underway=False,
        poll_due=False,
        task_in_flight=False,
        unrecorded=False,
    )
    assert decide(runs).action is Action.NO_ACTION


@given(SITUATIONS)
def test_only_what_runs_as_wished_is_told_again(situation: Situation) -> None:
    """It changes nothing of what runs: its agent has none of it, and said so when it was asked."""
    if decide(situation).action is Action.TELL_AGAIN:
        assert situation.unrecorded
        assert situation.confirmed
        assert (situation.outlook, situation.charge) == (Outlook.RUN, Charge.CHARGED)
        assert (situation.observed, situation.revision_matches) == (ObservedState.RUNNING, True)
        assert situation.recorded
        assert situation.reapply_due


STARTING = Situation(
    Outlook.RUN, Charge.CHARGED, NodeCondition.READY, ObservedState.PENDING, confirmed=True,
    revision_matches=True, sent_here=True,
)  # fmt: skip


@pytest.mark.parametrize("observed", [ObservedState.PENDING, ObservedState.UNKNOWN])
def test_what_does_not_start_in_time_has_failed(observed: ObservedState) -> None:
    """Defect C16: Pending and Unknown are waited for as long as the type may take, then asked
    about, then counted as a failure."""
    starting = evolve(STARTING, observed=observed)
    assert decide(starting).action is Action.AWAIT_START
    overdue = evolve(starting, start_overdue=True)
    assert decide(evolve(overdue, confirmed=False)).action is Action.INQUIRE
    assert decide(overdue).action is Action.RECORD_FAILURE


@pytest.mark.parametrize(
    "observed", [ObservedState.STOPPED, ObservedState.FAILED, ObservedState.MISSING]
)
def test_what_is_to_rest_rests_however_it_came_to(observed: ObservedState) -> None:
    """Defect C16: desired Stopped and observed Failed is at rest, and the record says so."""
    ended = evolve(STARTING, outlook=Outlook.STOP, observed=observed)
    assert decide(ended).action is Action.SETTLE
    assert decide(evolve(ended, recorded=True)).action is Action.NO_ACTION


@pytest.mark.parametrize("observed", sorted(AT_REST))
def test_what_rests_is_stopped_all_the_same_where_its_agent_means_to_run_it(
    observed: ObservedState,
) -> None:
    """A stop whose agent went down in the middle of the first apply is told again, in its time and
    after a look, until the agent knows of it."""
    resting = evolve(
        STARTING, outlook=Outlook.STOP, observed=observed, recorded=True, will_start=True
    )
    assert decide(resting).action is Action.APPLY_STOPPED
    assert decide(evolve(resting, confirmed=False)).action is Action.INQUIRE
    assert decide(evolve(resting, reapply_due=False)).action is Action.REAPPLY_WAIT
    assert decide(evolve(resting, will_start=False)).action is Action.NO_ACTION

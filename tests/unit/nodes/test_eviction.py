from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys_core.nodes.eviction import (
    EvictionPlan,
    EvictionPolicy,
    EvictionState,
    is_mass_loss,
    plan_evictions,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = EvictionPolicy()


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def silent(*ends: float) -> dict[str, datetime]:
    """Nodes n1, n2 … whose leases ended at these seconds."""
    return {f"n{number}": at(end) for number, end in enumerate(ends, 1)}


def plan(
    state: EvictionState, now: float, since: dict[str, datetime], total: int = 100
) -> EvictionPlan:
    return plan_evictions(
        state, total=total, silent_since=since, lost=since, policy=POLICY, now=at(now)
    )


@pytest.mark.parametrize(
    ("total", "ends", "expected"),
    [
        (10, [0] * 9, True),  # the trial of N01
        (10, [0] * 5, False),  # half is not more than half
        (10, [0] * 6, True),
        (10, [0, 0, 0, 30, 30, 30], True),  # within one lease
        (10, [0, 0, 0, 31, 31, 31], False),  # further apart: 3 of 10, then 3 of 7
        (10, [0, 0, 0, 31, 31, 31, 31], True),  # 4 of the 7 that were left
        (3, [0, 0, 0], True),
        (3, [0, 0], False),  # fewer than three are never a mass
        (1, [0], False),
        (10, [], False),
    ],
)
def test_mass_loss_is_more_than_half_of_those_that_were_there(
    total: int, ends: list[float], expected: bool
) -> None:
    """More than half, three or more, within one lease (decisions §3, N01)."""
    assert is_mass_loss(total, silent(*ends), POLICY) is expected


def test_nodes_are_released_one_by_one_the_longest_lost_first() -> None:
    """At most one more node in ten seconds may lose its work."""
    since = silent(5, 0, 9)
    state = EvictionState()
    first = plan(state, 200, since)
    assert first.may_move == {"n2"}
    assert first.next_at == at(210)
    early = plan(first.state, 209.9, since)
    assert early.may_move == {"n2"}
    second = plan(early.state, 210, since)
    assert second.may_move == {"n2", "n1"}
    last = plan(second.state, 220, since)
    assert last.may_move == {"n1", "n2", "n3"}
    assert last.next_at is None


def test_the_pause_begins_when_the_last_release_was_carried_out() -> None:
    """A store that answers late must not let the work of several nodes leave together."""
    since = silent(0, 5)
    state = plan(EvictionState(), 200, since).state
    for now in (201, 230, 240):
        late = plan_evictions(
            state,
            total=100,
            silent_since=since,
            lost=since,
            policy=POLICY,
            now=at(now),
            under_way=True,
        )
        assert late.may_move == {"n1"}
        state = late.state
    assert plan(state, 249, since).may_move == {"n1"}
    assert plan(state, 250, since).may_move == {"n1", "n2"}


def test_nothing_lost_means_nothing_to_tell() -> None:
    """A healthy cluster has an empty plan."""
    assert plan(EvictionState(), 0, {}) == EvictionPlan(EvictionState(), frozenset())


def test_a_node_that_is_heard_again_keeps_its_work() -> None:
    """The release of a node ends with its silence; another silence is another release."""
    released = plan(EvictionState(), 200, silent(0)).state
    assert plan(released, 201, {}).may_move == frozenset()
    again = plan(plan(released, 201, {}).state, 205, silent(100))
    assert again.may_move == frozenset()
    assert again.next_at == at(210)


def test_a_silent_node_within_its_grace_is_not_released() -> None:
    """Only lost nodes lose their work."""
    outcome = plan_evictions(
        EvictionState(), total=9, silent_since=silent(0, 1), lost=["n2"], policy=POLICY, now=at(9)
    )
    assert outcome.may_move == {"n2"}


def test_mass_loss_stops_everything_and_is_told_once() -> None:
    """Nine of ten silent: no node's work moves, one event begins it, one ends it (N01)."""
    since = silent(*[0] * 9)
    begun = plan(EvictionState(), 200, since, total=10)
    assert (begun.may_move, begun.mass_loss_began) == (frozenset(), True)
    on = plan(begun.state, 400, since, total=10)
    assert (on.may_move, on.mass_loss_began, on.mass_loss_ended) == (frozenset(), False, False)
    over = plan(on.state, 500, silent(0, 0), total=10)
    assert over.mass_loss_ended
    assert over.may_move == {"n1"}


def test_mass_loss_stops_what_was_released_before() -> None:
    """A move that had begun stops too, and goes on afterwards without waiting for its turn."""
    released = plan(EvictionState(), 200, silent(0), total=10).state
    mass = plan(released, 300, {**silent(0), **{f"m{n}": at(250) for n in range(7)}}, total=10)
    assert mass.may_move == frozenset()
    after = plan(mass.state, 331, silent(0), total=10)
    assert after.may_move == {"n1"}


def test_after_a_mass_loss_the_others_have_a_lease_to_come_back() -> None:
    """Agents that were cut off together come back one by one: who is late by less than a lease
    keeps its work."""
    mass = plan(EvictionState(), 300, silent(*[0] * 8), total=10)
    some = plan(mass.state, 301, silent(0, 0), total=10)
    assert (some.may_move, some.mass_loss_ended) == (frozenset(), True)
    assert some.next_at == at(330)
    late = plan(some.state, 329, silent(0, 0), total=10)
    assert late.may_move == frozenset()
    assert plan(late.state, 330, silent(0), total=10).may_move == {"n1"}


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(0, 30), st.sets(st.integers(0, 11))), max_size=60),
)
def test_releases_keep_their_distance(passes: list[tuple[float, set[int]]]) -> None:
    """Over any history: never two new nodes within ten seconds, never a node that is heard."""
    state, now = EvictionState(), 1000.0
    releases: list[float] = []
    for passed, lost in passes:
        now += passed
        outcome = plan(state, now, {f"n{node}": at(node * 60) for node in lost}, total=30)
        assert outcome.may_move <= {f"n{node}" for node in lost}
        new = outcome.state.released - state.released
        releases += [now] * len(new)
        state = outcome.state
    gaps = [later - sooner for sooner, later in pairwise(releases)]
    assert all(gap >= 10 - 1e-6 for gap in gaps)

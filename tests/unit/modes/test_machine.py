from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from persys_core.model.states import OperatingMode
from persys_core.modes.machine import (
    TRANSITIONS,
    Cause,
    ModeEvent,
    ModePolicy,
    ModeState,
    Permissions,
    frozen_text,
    next_mode,
    permits,
    tells_drain,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
NORMAL, DEGRADED, RECOVERY = OperatingMode.NORMAL, OperatingMode.DEGRADED, OperatingMode.RECOVERY
E = ModeEvent
STARTED = ModeState.started(T0)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def run(*events: ModeEvent, state: ModeState = STARTED, every: float = 1) -> ModeState:
    """The state after ``events``, one each ``every`` seconds."""
    for number, event in enumerate(events, 1):
        state = next_mode(state, event, at(number * every))
    return state


UNAVAILABLE = run(E.OPERATION_EXHAUSTED)
NO_SPACE = run(E.SPACE_EXCEEDED)
WIPED = run(E.MARKER_MISSING)
FRESH_WITH_WORK = run(E.WORK_WHILE_FRESH)


def test_the_table_is_total() -> None:
    """Every event has a transition in every mode."""
    assert set(TRANSITIONS) == set(product(OperatingMode, ModeEvent))


@pytest.mark.parametrize(
    ("event", "from_normal", "from_unavailable", "from_no_space", "from_wiped", "from_fresh"),
    [
        (E.PROBE_OK, NORMAL, DEGRADED, DEGRADED, RECOVERY, RECOVERY),
        (E.PROBE_FAILED, NORMAL, DEGRADED, DEGRADED, RECOVERY, RECOVERY),
        (E.OPERATION_EXHAUSTED, DEGRADED, DEGRADED, DEGRADED, RECOVERY, RECOVERY),
        (E.SPACE_EXCEEDED, DEGRADED, DEGRADED, DEGRADED, RECOVERY, RECOVERY),
        (E.PROBE_WRITTEN, NORMAL, DEGRADED, NORMAL, RECOVERY, RECOVERY),
        (E.DATA_WHOLE, NORMAL, NORMAL, DEGRADED, NORMAL, RECOVERY),
        (E.MARKER_MISSING, RECOVERY, RECOVERY, RECOVERY, RECOVERY, RECOVERY),
        (E.CLUSTER_CHANGED, RECOVERY, RECOVERY, RECOVERY, RECOVERY, RECOVERY),
        (E.REVISION_REWOUND, RECOVERY, RECOVERY, RECOVERY, RECOVERY, RECOVERY),
        (E.WORK_WHILE_FRESH, RECOVERY, RECOVERY, RECOVERY, RECOVERY, RECOVERY),
        (E.ACKNOWLEDGED, NORMAL, DEGRADED, DEGRADED, NORMAL, NORMAL),
    ],
)
def test_each_event_in_each_mode(
    event: ModeEvent,
    from_normal: OperatingMode,
    from_unavailable: OperatingMode,
    from_no_space: OperatingMode,
    from_wiped: OperatingMode,
    from_fresh: OperatingMode,
) -> None:
    """The next modes are those of the module's table."""
    starts = (STARTED, UNAVAILABLE, NO_SPACE, WIPED, FRESH_WITH_WORK)
    found = [next_mode(state, event, at(9)).mode for state in starts]
    assert found == [from_normal, from_unavailable, from_no_space, from_wiped, from_fresh]


def test_one_failed_probe_freezes_nothing() -> None:
    """Three in a row do; a good one in between starts the count anew (defect C4)."""
    fails = E.PROBE_FAILED
    assert run(fails, fails).mode is NORMAL
    assert run(fails, fails, E.PROBE_OK, fails, fails).mode is NORMAL
    assert run(fails, fails, E.DATA_WHOLE, fails, fails).mode is NORMAL
    assert run(fails, fails, fails).mode is DEGRADED


def test_the_count_begins_anew_after_a_freeze() -> None:
    """Back in normal, three probes must fail again."""
    thawed = run(*[E.PROBE_FAILED] * 5, E.DATA_WHOLE)
    assert thawed.failed_probes == 0
    assert run(E.PROBE_FAILED, E.PROBE_FAILED, state=thawed).mode is NORMAL


def test_one_exhausted_operation_degrades() -> None:
    """All tries of one operation were in vain: that is sustained enough (decisions §4)."""
    state = next_mode(STARTED, E.OPERATION_EXHAUSTED, at(1), detail="put: deadline exceeded")
    assert state.mode is DEGRADED
    assert state.reason == "store unavailable: put: deadline exceeded"


def test_a_wiped_store_is_recovery_also_after_an_outage() -> None:
    """An emptied store under a known cluster is never normal by itself (E04, defect A3)."""
    assert run(E.OPERATION_EXHAUSTED, E.PROBE_OK, E.MARKER_MISSING, E.PROBE_OK).mode is RECOVERY


def test_a_new_cluster_survives_a_bad_moment() -> None:
    """Three failed probes of a brand-new cluster end when its store answers (defect A4)."""
    assert run(E.DATA_WHOLE, *[E.PROBE_FAILED] * 4, E.PROBE_OK, E.DATA_WHOLE).mode is NORMAL


def test_recovery_ends_when_the_data_is_back() -> None:
    """A restored store that is proven whole needs no operator (E03, decisions §4)."""
    for loss in (E.MARKER_MISSING, E.CLUSTER_CHANGED, E.REVISION_REWOUND):
        assert run(loss, E.PROBE_FAILED, E.DATA_WHOLE).mode is NORMAL


def test_work_on_a_fresh_store_needs_an_operator() -> None:
    """The marker of a fresh store proves nothing while agents run work: import or acknowledge."""
    assert run(E.DATA_WHOLE, E.PROBE_WRITTEN, state=FRESH_WITH_WORK).mode is RECOVERY
    assert run(E.ACKNOWLEDGED, state=FRESH_WITH_WORK).mode is NORMAL


def test_a_full_store_thaws_by_its_first_good_put() -> None:
    """Reads go on all the time and prove nothing about space (E05)."""
    assert run(E.PROBE_OK, E.DATA_WHOLE, state=NO_SPACE).mode is DEGRADED
    assert run(E.PROBE_WRITTEN, state=NO_SPACE).mode is NORMAL


@pytest.mark.parametrize(
    ("mode", "cause", "expected"),
    [
        (NORMAL, Cause.NONE, Permissions(mutate=True, delete_only=True, act=True)),
        (DEGRADED, Cause.UNAVAILABLE, Permissions(mutate=False, delete_only=False, act=False)),
        (DEGRADED, Cause.SPACE, Permissions(mutate=False, delete_only=True, act=False)),
        (RECOVERY, Cause.REWOUND, Permissions(mutate=False, delete_only=False, act=False)),
    ],
)
def test_what_each_mode_permits(mode: OperatingMode, cause: Cause, expected: Permissions) -> None:
    """Frozen means that nothing changes and nothing is sent; reads are always served (E09)."""
    assert permits(mode, cause) == expected
    assert permits(mode, cause).read


def test_agents_are_told_to_hold_after_a_minute() -> None:
    """A short outage is none of the agents' business (defect C4); recovery goes on counting."""
    frozen_at = UNAVAILABLE.frozen_since
    assert frozen_at is not None
    assert not tells_drain(STARTED, at(10**6))
    assert not tells_drain(UNAVAILABLE, frozen_at + timedelta(seconds=59))
    assert tells_drain(UNAVAILABLE, frozen_at + timedelta(seconds=60))
    lost = next_mode(UNAVAILABLE, E.MARKER_MISSING, at(30))
    assert lost.frozen_since == frozen_at
    assert tells_drain(lost, frozen_at + timedelta(seconds=60))
    thawed = next_mode(lost, E.DATA_WHOLE, at(90))
    assert not tells_drain(thawed, at(10**6))


def test_what_changes_nothing_gives_back_the_same_state() -> None:
    """A store that is away for hours makes no new state with each probe."""
    assert run(*[E.PROBE_FAILED] * 20, E.OPERATION_EXHAUSTED, state=UNAVAILABLE) is UNAVAILABLE
    assert run(E.MARKER_MISSING, E.PROBE_OK, state=WIPED) is WIPED
    assert run(E.PROBE_OK, E.DATA_WHOLE, E.PROBE_WRITTEN) is STARTED


def test_since_is_the_mode_s_beginning() -> None:
    """Another cause within a mode changes the reason and not its age."""
    worse = next_mode(WIPED, E.REVISION_REWOUND, at(500), detail="1200 to 1000")
    assert (worse.cause, worse.since) == (Cause.REWOUND, WIPED.since)
    assert "1200 to 1000" in worse.reason


def test_the_policy_sets_the_number_of_probes() -> None:
    """One failure is enough where the policy says so."""
    policy = ModePolicy(probe_failures=1)
    assert next_mode(STARTED, E.PROBE_FAILED, T0, policy=policy).mode is DEGRADED


def test_refused_callers_learn_why_and_what_to_do() -> None:
    """The text starts with the agreed words, and names reason, beginning and the way out."""
    for state, advice in ((UNAVAILABLE, "reads"), (NO_SPACE, "compact"), (WIPED, "import")):
        text = frozen_text(state)
        assert text.startswith("scheduler degraded/recovery mode")
        assert state.reason in text
        assert advice in text

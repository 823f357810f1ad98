"""Nodes drained one after another under load: the short form of `nox -s proofs`, and its judge."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest

from persys_core.control import placing
from persys_core.sim.agent_journal import Happening, JournalEntry
from proofs.copies import Copy, copies_of, longest_gap, moves, overlaps
from proofs.rolling_drain import Plan, run
from proofs.rolling_drain_judge import Asked, Bounds, Drained, Verdict, judge

T0 = datetime(2026, 1, 1, tzinfo=UTC)
BOUNDS = Bounds(gap=timedelta(seconds=8), overlap=timedelta(seconds=6))


def at(seconds: float) -> datetime:
    """The instant so many seconds after the start."""
    return T0 + timedelta(seconds=seconds)


def copy(node: str, began: float, ended: float | None = None) -> Copy:
    """One run of the workload ``w``."""
    return Copy("w", node, at(began), None if ended is None else at(ended))


def judged(
    *runs: Copy, exclusive: bool = False, deleted: float | None = None, now: float = 300
) -> Verdict:
    """The verdict on one workload; n1 is drained from 100, empty at 120 and back at 130."""
    gone = None if deleted is None else at(deleted)
    wish = Asked("w", T0, exclusive=exclusive, deleted_at=gone)
    turn = Drained("n1", at(100), at(120), at(130))
    return judge([wish], [turn], {"w": runs} if runs else {}, BOUNDS, at(now))


@pytest.mark.slow
def test_twenty_nodes_are_drained_one_after_another_under_load() -> None:
    """No workload without a healthy copy longer than its move needs, nothing twice, nothing lost,
    by the machines' own word, while work comes and goes."""
    outcome = run(Plan(nodes=20, workloads=150))
    assert outcome.verdict.violations == []
    assert (outcome.verdict.duplicates, outcome.verdict.lost, outcome.bugs) == (0, 0, 0)
    assert outcome.verdict.gap_start_first == timedelta(0)
    assert timedelta(0) < outcome.verdict.gap_stop_first <= outcome.bounds.gap
    assert outcome.verdict.moves >= 100
    assert outcome.arrived == outcome.deleted >= 100


def test_a_scheduler_that_stops_first_is_found_out() -> None:
    """The judge looks at what ran, not at what was meant."""
    with mock.patch.object(placing.Placing, "_may_overlap", return_value=False):
        outcome = run(Plan(nodes=3, workloads=12))
    assert any("had no copy for" in each for each in outcome.verdict.violations)


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (judged(copy("n1", 1, 112), copy("n2", 110)), ""),
        (judged(copy("n1", 1, 110), copy("n2", 115), exclusive=True), ""),
        (judged(copy("n2", 1, 100), deleted=95), ""),
        (judged(deleted=30), ""),
        (judged(copy("n1", 1, 110), copy("n2", 110.5)), "had no copy for 0.500 s"),
        (judged(copy("n1", 1, 110), copy("n2", 119), exclusive=True), "had no copy for 9.000 s"),
        (judged(copy("n1", 1, 110), copy("n2", 109), exclusive=True), "at once for 1.000 s"),
        (judged(copy("n1", 1, 119), copy("n2", 110)), "at once for 9.000 s"),
        (judged(copy("n2", 1, 112), copy("n3", 110)), "at once for 2.000 s"),
        (judged(copy("n1", 1, 70), copy("n2", 69)), "at once for 1.000 s"),
        (judged(copy("n1", 1)), "told to be empty"),
        (judged(copy("n1", 1, 119), copy("n1", 125, 126), copy("n2", 115)), "told to be empty"),
        (judged(), "did not come to run"),
        (judged(copy("n2", 70)), "did not come to run"),
        (judged(copy("n2", 1, 200)), "runs on no node at the end"),
        (judged(copy("n2", 1), copy("n3", 2)), "runs on ['n2', 'n3'] at the end"),
        (judged(copy("n2", 1), deleted=100), "was deleted and still ran on n2"),
    ],
)
def test_what_the_judge_finds(verdict: Verdict, words: str) -> None:
    """Gaps, copies that run twice, losses, leftovers and work on empty nodes; sound runs pass."""
    assert any(words in each for each in verdict.violations) is bool(words)
    assert words or not verdict.violations


def test_copies_are_read_from_the_machines_alone() -> None:
    """A run ends by a stop, an exit or a removal; a start of what runs already is none."""
    lines: Sequence[tuple[float, Happening]] = [
        (0, Happening.APPLY), (1, Happening.CREATED), (2, Happening.STARTED),
        (5, Happening.EXITED), (6, Happening.STARTED), (8, Happening.STOPPED),
        (8, Happening.REMOVED), (9, Happening.STARTED),
    ]  # fmt: skip
    entries = [JournalEntry(at(second), what, "w") for second, what in lines]
    runs = copies_of([("n1", entries), ("n2", [JournalEntry(at(7), Happening.STARTED, "w")])])
    expected = [copy("n1", 2, 5), copy("n1", 6, 8), copy("n2", 7), copy("n1", 9)]
    assert runs == {"w": expected}
    assert longest_gap(expected, at(10)) == timedelta(seconds=1)
    assert longest_gap(expected[:1], at(10)) == timedelta(seconds=5)
    assert moves(expected) == 2
    together = [(a.node_id, b.node_id, span.seconds) for a, b, span in overlaps(expected, at(10))]
    assert together == [("n1", "n2", 1), ("n2", "n1", 1)]

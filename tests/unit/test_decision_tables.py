"""docs/decision-tables.md says what the tables do, and is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TypeVar, get_type_hints

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from persys_core.drift.remedy import REMEDIES, Facts
from persys_core.model.states import ObservedState
from persys_core.reconcile.decide import RULES
from persys_core.reconcile.situation import Outlook, Situation
from tools import generate_tables
from tools.generate_tables import clauses_of, tell
from tools.table_words import PHRASES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
F = TypeVar("F")


def combinations(facts: type[F]) -> st.SearchStrategy[F]:
    """Any combination of values of a class of facts."""
    return st.builds(facts, **{name: st.from_type(t) for name, t in get_type_hints(facts).items()})


def test_the_page_is_up_to_date() -> None:
    """The page is what the generator makes of the tables as they are."""
    check = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_tables.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert check.returncode == 0, check.stderr


def test_a_stale_page_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that differs in one word, or is not there, fails the check; writing mends it."""
    page = tmp_path / "decision-tables.md"
    monkeypatch.setattr(generate_tables, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["generate_tables.py"])
    assert generate_tables.main() == 1
    assert "decision-tables.md is out of date" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["generate_tables.py", "--write"])
    assert generate_tables.main() == 0
    monkeypatch.setattr(sys, "argv", ["generate_tables.py", "--check"])
    assert generate_tables.main() == 0
    page.write_text(page.read_text().replace("`run-pinned`", "`run-away`"))
    assert generate_tables.main() == 1


@given(combinations(Situation))
def test_reconcile_conditions_are_told_as_they_are(situation: Situation) -> None:
    """What the page says of a rule holds exactly where the rule does."""
    for rules in RULES.values():
        for rule in rules:
            told = any(
                all(getattr(situation, fact) in values for fact, values in clause.items())
                for clause in clauses_of(rule.when, Situation)
            )
            assert told is rule.when(situation), rule.name


@given(combinations(Facts))
def test_drift_conditions_are_told_as_they_are(facts: Facts) -> None:
    """What the page says of a remedy holds exactly where the remedy does."""
    for row in REMEDIES:
        told = any(
            all(getattr(facts, fact) in values for fact, values in clause.items())
            for clause in clauses_of(row.when, Facts)
        )
        assert told is row.when(facts), row.name


def test_values_that_lead_to_the_same_are_told_together() -> None:
    """A fact that does not count is left out, and one that counts is named once."""
    assert tell(lambda s: s.recorded or not s.recorded, Situation) == "always"
    assert tell(
        lambda s: s.observed in (ObservedState.FAILED, ObservedState.MISSING), Situation
    ) == ("it is seen `Failed` or `Missing`")
    assert tell(lambda s: s.observed is not ObservedState.RUNNING, Situation) == (
        "it is seen not `Running`"
    )
    assert tell(lambda s: s.pinned or s.recorded, Situation) == (
        "its data ties it to its node; or its record says so"
    )


@frozen
class Unspoken:
    gone_away: bool
    outlook: Outlook


def test_a_fact_without_words_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new fact shows at once; it may get better words later."""
    monkeypatch.setitem(PHRASES, Unspoken, {})
    assert tell(lambda f: not f.gone_away and f.outlook is Outlook.RUN, Unspoken) == (
        "not gone away, and outlook is `run`"
    )

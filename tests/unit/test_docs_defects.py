"""docs/reference-defects.md and docs/agent-defects.md are complete, and name tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference-defects.md"
ROW = re.compile(
    r"^\| (?P<id>[A-Z]\d+) \| (?P<there>.+) \| (?P<here>.+) \| (?P<proof>.+) \|$", re.M
)
ROWS = {match["id"]: match for match in ROW.finditer(PAGE.read_text())}


def _ids(letter: str, *numbers: int) -> list[str]:
    return [f"{letter}{number}" for number in numbers]


EXPECTED = set(
    chain(
        _ids("A", *range(1, 10)),
        _ids("B", 5, 6),
        _ids("C", *range(2, 19)),
        _ids("D", *range(1, 8)),
        _ids("E", *range(1, 8), *range(9, 13)),
        _ids("F", 3, 4, 9, 11),
        _ids("J", 6, 11, 12, 13),
    )
)


AGENT_PAGE = ROOT / "docs" / "agent-defects.md"
AGENT_ROW = re.compile(
    r"^\| (?P<id>\d+) \| (?P<there>.+) \| (?P<here>.+) \| (?P<proof>.+) \|$", re.M
)
AGENT_ROWS = {int(match["id"]): match for match in AGENT_ROW.finditer(AGENT_PAGE.read_text())}
SUITES = "packages/persys-agent/src/persys_agent/testing/"


@cache
def _tests_in(path: Path) -> frozenset[str]:
    """The names of the test functions of a module, those of its suites and classes included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    module = ast.parse(path.read_text())
    bodies = [module.body, *(each.body for each in module.body if isinstance(each, ast.ClassDef))]
    return frozenset(node.name for body in bodies for node in body if isinstance(node, kinds))


def _exists(test: str) -> None:
    """Fails unless ``test`` is one that pytest collects, or a rule of a shipped suite."""
    path, _, name = test.partition("::")
    assert Path(path).name.startswith("test_") or path.startswith(SUITES), test
    assert name.startswith("test_"), test
    assert name in _tests_in(ROOT / path), test


def test_no_defect_is_forgotten() -> None:
    """Each number stands in one row, and nothing else does."""
    assert set(ROWS) == EXPECTED
    assert len(ROW.findall(PAGE.read_text())) == len(EXPECTED)


def test_the_page_says_which_numbers_it_covers() -> None:
    """Numbers of parts that are not built yet have no row, so nobody may take them for done."""
    [told] = re.findall(r"covers (.+?)\. ", PAGE.read_text().replace("\n", " "))
    covered = set[str]()
    for letter, first, last in re.findall(r"([A-Z])(\d+)(?:-[A-Z](\d+))?", told):
        covered.update(_ids(letter, *range(int(first), int(last or first) + 1)))
    assert covered == EXPECTED


@pytest.mark.parametrize("defect", sorted(EXPECTED))
def test_each_defect_has_proof_that_exists(defect: str) -> None:
    """Every test that a row names is one that pytest collects."""
    named = re.findall(r"`([^`]+)`", ROWS[defect]["proof"])
    assert named
    for each in named:
        _exists(each)


def test_no_defect_of_the_agent_is_forgotten() -> None:
    """Each of the 42 stands in one row, in order."""
    assert [int(row["id"]) for row in AGENT_ROW.finditer(AGENT_PAGE.read_text())] == [*range(1, 43)]


@pytest.mark.parametrize("defect", sorted(AGENT_ROWS))
def test_each_defect_of_the_agent_has_proof_that_exists(defect: int) -> None:
    """Every test that a row names is one that runs."""
    named = re.findall(r"`([^`]+::[^`]+)`", AGENT_ROWS[defect]["proof"])
    assert named
    for each in named:
        _exists(each)

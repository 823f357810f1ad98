"""The table of remedies: total, each row reached, and nothing deleted when in doubt."""

from itertools import product
from pathlib import Path

import pytest
from attrs import evolve

from persys_core.drift.classify import OrphanKind
from persys_core.drift.remedy import REMEDIES, Age, Facts, choose_remedy
from persys_core.model.drift import DriftAction, DriftType, OrphanPolicy

ALL = [
    Facts(kind, policy, orphan, age, *flags)
    for kind, policy, orphan, age in product(DriftType, OrphanPolicy, OrphanKind, Age)
    for flags in product((False, True), repeat=5)
]
DELETES = {
    DriftAction.DELETE_ORPHAN,
    DriftAction.DELETE_DUPLICATE,
    DriftAction.DELETE_RESIDUAL,
}
ORPHAN = Facts(DriftType.ORPHAN_ON_AGENT)
ADOPT = evolve(
    ORPHAN,
    policy=OrphanPolicy.ADOPT,
    kind=OrphanKind.STRAY,
    same_revision=True,
    wanted=True,
    has_room=True,
)
DELETE = evolve(ORPHAN, policy=OrphanPolicy.DELETE, age=Age.NEWER, sighted_enough=True)

CASES: dict[str, tuple[Facts, DriftAction]] = {
    "state": (Facts(DriftType.STATE_MISMATCH), DriftAction.ALIGN),
    "revision": (Facts(DriftType.REVISION_MISMATCH), DriftAction.REAPPLY),
    "missing": (Facts(DriftType.MISSING_ON_AGENT), DriftAction.RECONCILE),
    "report": (ORPHAN, DriftAction.INVESTIGATE),
    "adopt-unknown": (evolve(ADOPT, kind=OrphanKind.UNKNOWN), DriftAction.INVESTIGATE),
    "adopt-residual": (evolve(ADOPT, kind=OrphanKind.RESIDUAL), DriftAction.INVESTIGATE),
    "adopt-duplicate": (evolve(ADOPT, kind=OrphanKind.DUPLICATE), DriftAction.INVESTIGATE),
    "adopt-unwanted": (evolve(ADOPT, wanted=False), DriftAction.INVESTIGATE),
    "adopt-other-revision": (evolve(ADOPT, same_revision=False), DriftAction.INVESTIGATE),
    "adopt-no-room": (evolve(ADOPT, has_room=False), DriftAction.INVESTIGATE),
    "adopt": (ADOPT, DriftAction.ADOPT),
    "delete-older": (evolve(DELETE, age=Age.OLDER), DriftAction.INVESTIGATE),
    "delete-untold": (evolve(DELETE, age=Age.UNTOLD), DriftAction.INVESTIGATE),
    "delete-stray": (evolve(DELETE, kind=OrphanKind.STRAY), DriftAction.INVESTIGATE),
    "delete-only-copy": (evolve(DELETE, kind=OrphanKind.DUPLICATE), DriftAction.INVESTIGATE),
    "delete-later": (evolve(DELETE, sighted_enough=False), DriftAction.AWAIT_SIGHTINGS),
    "delete-residual": (evolve(DELETE, kind=OrphanKind.RESIDUAL), DriftAction.DELETE_RESIDUAL),
    "delete-duplicate": (
        evolve(DELETE, kind=OrphanKind.DUPLICATE, sound_elsewhere=True),
        DriftAction.DELETE_DUPLICATE,
    ),
    "delete-unknown": (DELETE, DriftAction.DELETE_ORPHAN),
}


def test_the_table_is_total_and_every_row_has_its_case() -> None:
    """Some row holds for any facts, and each row is reached by a case of its own."""
    assert [row.name for row in REMEDIES] == list(CASES)
    assert {choose_remedy(facts).name for facts in ALL} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_each_row(name: str) -> None:
    """The row and its action; where an operator must act, it says why."""
    facts, action = CASES[name]
    chosen = choose_remedy(facts)
    assert (chosen.name, chosen.action) == (name, action)
    assert bool(chosen.note) == (action is DriftAction.INVESTIGATE)


def test_nothing_is_deleted_when_in_doubt() -> None:
    """A3: only an orphan, only by policy, only what is surely younger than the marker, and only
    after enough sightings; never what the cluster still lacks elsewhere."""
    deleted = [facts for facts in ALL if choose_remedy(facts).action in DELETES]
    assert deleted
    for facts in deleted:
        assert facts.type is DriftType.ORPHAN_ON_AGENT
        assert facts.policy is OrphanPolicy.DELETE
        assert facts.age is Age.NEWER
        assert facts.sighted_enough
        assert facts.kind is not OrphanKind.STRAY
        assert facts.kind is not OrphanKind.DUPLICATE or facts.sound_elsewhere


def test_only_what_has_no_node_is_adopted() -> None:
    """A workload that belongs elsewhere, or that nobody knows, gets no assignment."""
    for facts in ALL:
        if choose_remedy(facts).action is DriftAction.ADOPT:
            assert facts.kind is OrphanKind.STRAY
            assert facts.has_room
            assert facts.same_revision


def test_every_action_is_explained_to_operators() -> None:
    """The words of events, records and `drift list` are those of the operations manual."""
    manual = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    assert [each for each in DriftAction if f"| `{each}` |" not in manual] == []

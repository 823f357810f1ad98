"""DriftNotes: what is kept of listings, what a row of them is, and when a finding is ripe."""

from datetime import timedelta

from persys_core.control.drift_notes import DriftNotes
from persys_core.control.view import ClusterView
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.ports.cluster_store import Key, Record, Snapshot, Versioned
from tests.builders import START, container

GHOST = AgentReport("ghost", AgentState.RUNNING, "r", created_at=START)
GRACE = timedelta(seconds=10)


def _notes(records: dict[Key, Record] | None = None) -> DriftNotes:
    view = ClusterView()
    view.load(Snapshot(1, {key: Versioned(each, 1, 1) for key, each in (records or {}).items()}))
    return DriftNotes(view, GRACE)


def _listed(notes: DriftNotes, *reports: AgentReport, seconds: float) -> list[int]:
    """Take a listing; how many in a row showed each orphan that was found."""
    notes.take("n1", reports, (), START + timedelta(seconds=seconds))
    look = notes.look("n1")
    assert look is not None
    return [each.orphan.listings for each in look.findings if each.orphan]


def test_orphans_are_counted_in_a_row() -> None:
    """The first sighting is no finding; one listing without it begins anew."""
    notes = _notes()
    assert _listed(notes, GHOST, seconds=0) == []
    assert _listed(notes, GHOST, seconds=5) == [2]
    assert _listed(notes, GHOST, seconds=10) == [3]
    assert _listed(notes, seconds=15) == []
    assert _listed(notes, GHOST, seconds=20) == []


def test_a_long_silence_ends_a_row() -> None:
    """Listings of before an outage say nothing of what was there meanwhile; nor does one that was
    asked for earlier and answered later."""
    notes = _notes()
    _listed(notes, GHOST, seconds=0)
    assert _listed(notes, GHOST, seconds=5) == [2]
    assert _listed(notes, GHOST, seconds=5 + 600) == []
    assert _listed(notes, GHOST, seconds=5 + 599) == []


def test_the_agents_word_on_the_age_is_kept() -> None:
    """Heartbeats do not say since when the agent has it; what a listing said holds in a row."""
    notes = _notes()
    _listed(notes, GHOST, seconds=0)
    _listed(notes, AgentReport("ghost", AgentState.RUNNING), seconds=5)
    (found,) = notes.ripe("n1", START)
    assert found.orphan is not None
    assert found.orphan.created_at == START


def test_the_reconcilers_findings_ripen() -> None:
    """What is assigned there is told only when the reconciler had time to say what it is, counted
    from the first sighting; and each finding is given once."""
    workload = Workload("w", "u", container(), "r", DesiredState.RUNNING, START, START)
    notes = _notes(
        {
            Key.workload("w"): workload,
            Key.status("w"): StatusRecord("w", "u", WorkloadStatus.RUNNING, START),
            Key.assignment("w"): Assignment("w", "u", "n1", Resources(), "", START),
        }
    )
    at = START + timedelta(minutes=1)
    for seconds in (0, 5):
        notes.take("n1", (), ("w",), at + timedelta(seconds=seconds))
        assert notes.ripe("n1", at + timedelta(seconds=seconds)) == []
    assert [each.at for each in notes.ripe("n1", at + GRACE)] == [at]
    assert notes.ripe("n1", at + GRACE) == []


def test_a_new_term_begins_without_notes() -> None:
    """What a follower saw is not told by the leader that it becomes; a gone node is forgotten."""
    for forget in (DriftNotes.clear, lambda notes: notes.forget("n1")):
        notes = _notes()
        _listed(notes, GHOST, seconds=0)
        _listed(notes, GHOST, seconds=5)
        forget(notes)
        assert notes.look("n1") is None
        assert notes.ripe("n1", START) == []
        assert _listed(notes, GHOST, seconds=10) == []

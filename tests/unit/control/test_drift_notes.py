"""DriftNotes: what is kept of listings, what a row of them is, and when a finding is ripe."""

from datetime import timedelta

from attrs import evolve

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
    (found,) = notes.ripe("n1")
    assert found.orphan is not None
    assert found.orphan.created_at == START


def _running() -> DriftNotes:
    """``w`` is recorded as running on n1, and has been for a while."""
    workload = Workload("w", "u", container(), "r", DesiredState.RUNNING, START, START)
    return _notes(
        {
            Key.workload("w"): workload,
            Key.status("w"): StatusRecord("w", "u", WorkloadStatus.RUNNING, START),
            Key.assignment("w"): Assignment("w", "u", "n1", Resources(), "", START),
        }
    )


BEAT = AgentReport("w", AgentState.STOPPED, "r")
LATER = 60.0


def test_what_is_sure_is_ripe_at_once_and_given_once() -> None:
    """A missing workload needs no second look; what was healed before the pass is told too."""
    notes = _running()
    notes.take("n1", (), ("w",), START + timedelta(seconds=LATER))
    _listed(notes, seconds=LATER + 5)
    assert [each.type.value for each in notes.ripe("n1")] == ["missing_on_agent"]
    assert notes.ripe("n1") == []


def test_what_is_not_sure_ripens_by_lasting() -> None:
    """A stop of unknown cause is drift if listings show it for the grace; one without it, or a
    single one however long ago, is an end or a restart."""
    notes = _running()
    for seconds in (0, 5):
        _listed(notes, BEAT, seconds=LATER + seconds)
        assert notes.ripe("n1") == []
    _listed(notes, seconds=LATER + 8)
    _listed(notes, BEAT, seconds=LATER + 12)
    assert notes.ripe("n1") == []
    _listed(notes, BEAT, seconds=LATER + 22)
    assert [each.type.value for each in notes.ripe("n1")] == ["state_mismatch"]


def test_an_answer_makes_sure_what_a_heartbeat_left_open() -> None:
    """The reconciler asks at once, and the agent then says that somebody told it to stop."""
    for told, sure in ((DesiredState.STOPPED, True), (DesiredState.RUNNING, False)):
        notes = _running()
        _listed(notes, BEAT, seconds=LATER)
        notes.confirm("n1", evolve(BEAT, desired_state=told))
        _listed(notes, seconds=LATER + 5)
        assert bool(notes.ripe("n1")) == sure


def test_a_new_term_begins_without_notes() -> None:
    """What a follower saw is not told by the leader that it becomes; a gone node is forgotten."""
    for forget in (DriftNotes.clear, lambda notes: notes.forget("n1")):
        notes = _notes()
        _listed(notes, GHOST, seconds=0)
        _listed(notes, GHOST, seconds=5)
        forget(notes)
        assert notes.look("n1") is None
        assert notes.ripe("n1") == []
        assert _listed(notes, GHOST, seconds=10) == []

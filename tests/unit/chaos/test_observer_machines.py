"""Spoiled histories of machines: each is told, a sound one is not."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import IntentAction
from persys_core.ports.cluster_store import Key
from persys_core.sim.agent_journal import Happening, JournalEntry
from persys_core.sim.invariants import Rule
from proofs.chaos.convergence import unfinished
from proofs.chaos.journal import JournalFile, text_of, upto_text
from proofs.chaos.timelines import Span
from tests.unit.chaos.support import START, History, revision_of


def running(*nodes: str) -> History:
    """A workload that runs on ``n1``."""
    history = History.begun(*(nodes or ("n1",)))
    history.placed("w", "n1")
    history.runs()
    assert history.broken() == []
    return history


def moved(history: History) -> None:
    """It is taken from ``n1``, which owes a delete, to ``n2``."""
    history.puts(
        {
            Key.assignment("w"): history.assignment("w", "n2"),
            Key.tombstone("n1", "w"): history.grave(),
            Key.allocation("n2"): history.ledger("n2", 1),
        }
    )


@pytest.mark.parametrize("what", [Happening.APPLY, Happening.DELETE])
def test_a_call_without_an_intent_is_told(what: Happening) -> None:
    """An agent is told something that no commit announced."""
    history = History.begun("n1")
    history.placed("w", "n1")
    history.asked(generation=0)

    history.line(what)

    assert history.broken() == [Rule.INTENT]
    assert "was announced 0 times" in history.texts()


@pytest.mark.parametrize(
    "spoiled",
    [{"epoch": 1}, {"revision_id": "other"}, {"node_id": "n2"}, {"workload_id": "v"}],
    ids=lambda each: next(iter(each)),
)
def test_an_intent_for_something_else_does_not_do(spoiled: dict[str, Any]) -> None:
    """An announcement is of one epoch, revision, node and workload."""
    history = History.begun("n1", "n2")
    history.placed("w", "n1")
    history.announced()

    history.line(Happening.APPLY, **spoiled)

    assert history.broken() == [Rule.INTENT]


def test_a_call_that_is_made_twice_is_told() -> None:
    """Each announcement is good for one call."""
    history = running()

    history.line(Happening.APPLY)

    assert history.broken() == [Rule.INTENT]
    assert "came to n1 2 times and was announced 1 times" in history.texts()


def test_a_call_before_its_intent_is_told() -> None:
    """The intent is committed first, then the call is made."""
    history = History.begun("n1")
    history.placed("w", "n1")

    history.line(Happening.APPLY)
    history.announced()

    assert history.broken() == [Rule.INTENT]
    assert "before it was announced" in history.texts()


def test_an_agent_that_obeys_an_older_epoch_is_told() -> None:
    """Refused, it is what must happen to calls that were under way at the change."""
    for refused in (True, False):
        history = running()
        history.announced(revision_id="rev-2")
        old = history.epoch
        history.leads("two")
        history.announced(revision_id="rev-3")
        history.line(Happening.APPLY, revision_id="rev-3")
        late: dict[str, Any] = {"revision_id": "rev-2", "epoch": old}
        history.line(Happening.APPLY, **late)
        if refused:
            history.seconds -= 1
            history.line(Happening.REFUSED, **late)
        assert history.broken() == ([] if refused else [Rule.INTENT])


def test_two_copies_are_told() -> None:
    """Unless the older one is owed a delete."""
    history = running("n1", "n2")

    history.announced(node="n2")
    history.line(Happening.APPLY, "n2")
    history.line(Happening.STARTED, "n2")

    assert history.broken() == [Rule.ONE_COPY]
    assert "it was started on n2 and runs on n1, n2" in history.texts()


def test_a_copy_that_is_owed_a_delete_may_run_on() -> None:
    """Its node was lost, and a tombstone stands for it."""
    history = running("n1", "n2")
    history.observer.timelines.away["n1"].append(Span(history.now))
    history.seconds += 25
    moved(history)

    history.runs("n2")

    assert history.broken() == []


def test_a_copy_that_ended_is_none() -> None:
    """It stopped on its old node before it was started on the new one."""
    history = running("n1", "n2")

    history.line(Happening.STOPPED)
    history.runs("n2")

    assert history.broken() == []


def test_work_taken_from_a_node_within_reach_is_told() -> None:
    """A node that was away too briefly, or long ago, counts as within reach."""
    for away in ((), ((0, 5),), ((-130, -105),)):
        history = running("n1", "n2")
        for start, end in away:
            history.observer.timelines.away["n1"].append(
                Span(history.now + timedelta(seconds=start), history.now + timedelta(seconds=end))
            )
        history.seconds += 25
        moved(history)
        assert history.broken() == [Rule.NO_STRAY_STOP]
        assert "(node_lost); nobody asked" in history.texts()


def test_a_delete_that_nobody_asked_for_is_told() -> None:
    """Announced or not: no user wants it and no node owes it."""
    history = running()

    history.announced(action=IntentAction.DELETE)
    history.line(Happening.DELETE)

    assert history.broken() == [Rule.NO_STRAY_STOP]


def test_a_delete_before_it_was_asked_for_is_told() -> None:
    """A wish that comes later is no cause."""
    history = running()

    history.announced(action=IntentAction.DELETE)
    history.line(Happening.DELETE)
    history.asked(generation=0)

    assert history.broken() == [Rule.NO_STRAY_STOP]


def test_a_stop_that_nobody_asked_for_is_told() -> None:
    """The clients of these runs never stop anything."""
    history = running()

    history.announced(action=IntentAction.APPLY_STOPPED)
    history.line(Happening.APPLY, detail=str(DesiredState.STOPPED))

    assert history.broken() == [Rule.NO_STRAY_STOP]


def finished() -> History:
    """A workload that is as it should be."""
    history = running()
    history.puts({Key.status("w"): history.status("w")})
    assert left(history) == {}
    return history


def left(history: History) -> dict[str, str]:
    """What has not converged."""
    observer = history.observer
    return dict(unfinished(observer.picture, observer.timelines, observer.promises))


def test_a_lost_workload_has_not_converged() -> None:
    """It was accepted, and etcd has nothing of it, or something older."""
    history = finished()
    history.asked("lost")
    assert left(history) == {"lost": "etcd has nothing, its client was promised generation 1"}

    changed = finished()
    changed.asked(generation=2)
    assert "promised generation 2" in left(changed)["w"]


def test_a_refused_request_leaves_no_promise() -> None:
    """And one whose outcome is unknown leaves two right states."""
    history = finished()

    history.asked("refused", answer="refused")
    history.asked("doubtful", answer="unknown")

    assert left(history) == {}


def test_a_doubt_does_not_last() -> None:
    """What was accepted long after a request without an answer is all that is right."""
    for wait, right in ((0, True), (40, False)):
        history = finished()
        history.asked(generation=2, answer="unknown")
        history.seconds += wait
        history.asked(generation=3)
        history.puts(history.wish("w", 2))
        assert ("promised generation 3" in left(history)["w"]) is not right


def test_work_that_does_not_run_has_not_converged() -> None:
    """It ended, runs elsewhere, or runs in an older revision."""
    history = finished()
    history.line(Happening.EXITED)
    assert "runs on no node" in left(history)["w"]

    elsewhere = finished()
    elsewhere.line(Happening.STARTED, "n2")
    assert "runs on n1, n2" in left(elsewhere)["w"]

    outdated = finished()
    outdated.line(Happening.STARTED, revision_id=revision_of(0))
    assert "another revision" in left(outdated)["w"]


def test_a_status_that_is_wrong_has_not_converged() -> None:
    """The machines are right, and etcd does not say so."""
    history = finished()

    history.puts({Key.status("w"): history.status("w", status=WorkloadStatus.UPDATING)})

    assert left(history) == {"w": "it runs and its status is Updating"}


def test_an_owed_delete_has_not_converged() -> None:
    """A tombstone still stands."""
    history = finished()

    history.puts({Key.tombstone("n2", "w"): history.grave(node="n2")})

    assert left(history) == {"w": "n2 still owes its delete (node_lost)"}


def test_a_deleted_workload_that_runs_has_not_converged() -> None:
    """On its way out, and when its record is gone."""
    history = finished()
    history.asked(generation=0)
    history.puts(history.wish("w", 0))
    assert left(history) == {"w": "its deletion is not through"}

    history.puts({Key.workload("w"): None, Key.assignment("w"): None, Key.allocation("n1"): None})

    assert left(history) == {"w": "it is gone and runs on n1"}


def test_a_journal_is_read_while_it_is_written(tmp_path: Path) -> None:
    """Half a line waits for its rest."""
    path = tmp_path / "journal"
    journal = JournalFile(path)
    assert journal.read() == []
    text = text_of("n1", JournalEntry(START, Happening.APPLY, "w", "r", "Running", 5)) + "\n"
    path.write_text(text + text[:10])

    (line,) = journal.read()
    assert (line.node_id, line.at, line.what, line.epoch) == ("n1", START, Happening.APPLY, 5)
    assert journal.upto is None
    with path.open("a") as sink:
        sink.write(text[10:] + upto_text(START) + "\n")

    assert len(journal.read()) == 1
    assert journal.upto == START
    assert json.loads(text)["workload"] == "w"

"""What is left of the re-apply guard once a workload that its agent was told of runs as wished."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from persys_core.model.states import ObservedState, WorkloadStatus
from persys_core.model.workload import Intent, IntentAction, ReapplyState, StatusRecord
from persys_core.reconcile.observe import Sighting
from persys_core.reconcile.situation import Outlook, Seen
from persys_core.reconcile.transitions import settled

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TOLD = Intent(IntentAction.APPLY_RUNNING, "n1", "r1", 1, T0, T0 + timedelta(seconds=5))
SENT = ReapplyState(3, T0 + timedelta(minutes=3), T0, "r1")


@pytest.mark.parametrize(
    ("unrecorded", "by_query", "ran_before", "attempts"),
    [
        (True, True, True, 3),
        (True, False, True, 3),
        (False, False, True, 3),  # a beat, which says nothing of records
        (False, True, True, 0),
        (False, False, False, 0),  # a first start is seen by any report
    ],
)
def test_how_often_it_was_told_counts_on_until_the_agent_answers(
    *, unrecorded: bool, by_query: bool, ran_before: bool, attempts: int
) -> None:
    """Only the answer to a question shows that the agent took in what runs; the guard opens, so
    that nothing else has to wait for it."""
    status = StatusRecord(
        "w",
        "u",
        WorkloadStatus.RUNNING if ran_before else WorkloadStatus.SCHEDULED,
        T0,
        reapply=SENT,
        intent=TOLD,
        settled_since=T0 if ran_before else None,
    )
    sighting = Sighting(ObservedState.RUNNING, "r1", unrecorded=unrecorded)
    now = T0 + timedelta(seconds=1)
    found = settled(status, Outlook.RUN, Seen(sighting, now, by_query), "n1", now)
    assert found.reapply == ReapplyState(attempts, None, T0, "r1")
    assert found.intent is None

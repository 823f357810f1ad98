"""What is drift and what is not: the excuses and the comparisons, row by row."""

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from persys_core.drift.classify import (
    EXCUSES,
    Finding,
    OrphanKind,
    Recorded,
    Sighted,
    classify,
    excuse_of,
)
from persys_core.model.drift import DriftType
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import (
    Assignment,
    Intent,
    IntentAction,
    ReapplyState,
    Reason,
    StatusRecord,
    Workload,
)
from tests.builders import START, container

GRACE = timedelta(seconds=10)
NOW = START + timedelta(hours=1)
LATELY = NOW - timedelta(seconds=5)

WORKLOAD = Workload("w", "u1", container(), "rev1", DesiredState.RUNNING, START, START)
STATUS = StatusRecord("w", "u1", WorkloadStatus.RUNNING, START)
HERE = Assignment("w", "u1", "n1", Resources(), "", START)
SETTLED = Recorded(WORKLOAD, STATUS, HERE)
REPORT = AgentReport("w", AgentState.RUNNING, "rev1")
SEEN = Sighted("n1", "w", REPORT, NOW, listings=2)
ABSENT = evolve(SEEN, report=None)
STOPPED = evolve(SEEN, report=evolve(REPORT, state=AgentState.STOPPED))
NOT_FOUND = evolve(
    SEEN, report=evolve(REPORT, state=AgentState.UNKNOWN, message="container not found")
)
OTHER = evolve(SEEN, report=evolve(REPORT, revision_id="rev0"))
GROWS = Recorded(
    evolve(WORKLOAD, revision_id="rev2"),
    evolve(
        STATUS,
        status=WorkloadStatus.PENDING,
        reason=Reason("resize:cpu", "", START),
        reapply=ReapplyState(last_apply_at=START),
    ),
    HERE,
)
INTENT = Intent(IntentAction.APPLY_RUNNING, "n1", "rev1", 1, NOW, NOW)


def _with(status: WorkloadStatus, desired: DesiredState = DesiredState.RUNNING) -> Recorded:
    return Recorded(evolve(WORKLOAD, desired_state=desired), evolve(STATUS, status=status), HERE)


def _types(found: tuple[Finding, ...]) -> list[DriftType]:
    return [finding.type for finding in found]


@pytest.mark.parametrize(
    ("recorded", "sighted", "types"),
    [
        (SETTLED, SEEN, []),
        (SETTLED, ABSENT, [DriftType.MISSING_ON_AGENT]),
        (SETTLED, NOT_FOUND, [DriftType.MISSING_ON_AGENT]),
        (GROWS, ABSENT, [DriftType.MISSING_ON_AGENT]),
        (GROWS, SEEN, []),
        (GROWS, NOT_FOUND, []),
        (evolve(GROWS, assignment=evolve(HERE, created_at=LATELY)), ABSENT, []),
        (SETTLED, STOPPED, [DriftType.STATE_MISMATCH]),
        (SETTLED, OTHER, [DriftType.REVISION_MISMATCH]),
        (
            SETTLED,
            evolve(STOPPED, report=evolve(REPORT, state=AgentState.STOPPED, revision_id="rev0")),
            [DriftType.STATE_MISMATCH, DriftType.REVISION_MISMATCH],
        ),
        (_with(WorkloadStatus.STOPPED, DesiredState.STOPPED), SEEN, [DriftType.STATE_MISMATCH]),
        (_with(WorkloadStatus.COMPLETED), SEEN, [DriftType.STATE_MISMATCH]),
        (_with(WorkloadStatus.FAILED), SEEN, [DriftType.STATE_MISMATCH]),
        (_with(WorkloadStatus.STOPPED, DesiredState.STOPPED), STOPPED, []),
        (_with(WorkloadStatus.STOPPED, DesiredState.STOPPED), ABSENT, []),
        (_with(WorkloadStatus.STOPPED, DesiredState.STOPPED), OTHER, [DriftType.STATE_MISMATCH]),
        (SETTLED, evolve(SEEN, report=evolve(REPORT, revision_id="")), []),
        (Recorded(None, None, None), SEEN, [DriftType.ORPHAN_ON_AGENT]),
    ],
)
def test_each_type_is_found(recorded: Recorded, sighted: Sighted, types: list[DriftType]) -> None:
    """J13: the types are compared independently of each other; a hint without a revision has no
    other revision."""
    assert _types(classify(recorded, sighted, GRACE)) == types


@pytest.mark.parametrize("state", [AgentState.FAILED, AgentState.PENDING, AgentState.UNKNOWN])
def test_failures_and_starts_are_no_drift(state: AgentState) -> None:
    """A failed or starting workload is the reconciler's and the retry budget's business."""
    assert classify(SETTLED, evolve(SEEN, report=evolve(REPORT, state=state)), GRACE) == ()


@pytest.mark.parametrize(
    ("status", "desired", "told", "sure"),
    [
        ("Running", DesiredState.RUNNING, DesiredState.STOPPED, True),
        ("Running", DesiredState.RUNNING, DesiredState.RUNNING, False),
        ("Running", DesiredState.RUNNING, None, False),
        ("Stopped", DesiredState.STOPPED, None, True),
        ("Failed", DesiredState.RUNNING, DesiredState.RUNNING, False),
        ("Completed", DesiredState.RUNNING, DesiredState.RUNNING, False),
    ],
)
def test_what_one_look_tells_for_sure(
    status: str, desired: DesiredState, told: DesiredState | None, sure: bool
) -> None:
    """A stop that the agent was told of is no end; a stop below it may be one, or a restart."""
    state = AgentState.STOPPED if status == "Running" else AgentState.RUNNING
    report = evolve(REPORT, state=state, desired_state=told)
    recorded = _with(WorkloadStatus(status), desired)
    (finding,) = classify(recorded, evolve(SEEN, report=report), GRACE)
    assert (finding.type, finding.is_sure) == (DriftType.STATE_MISMATCH, sure)


CASES: dict[str, tuple[Recorded, Sighted]] = {
    "gone": (
        Recorded(None, None, None),
        evolve(
            SEEN,
            report=AgentReport(
                "w", AgentState.FAILED, message="failed to delete workload w: workload not found"
            ),
        ),
    ),
    "owed": (evolve(SETTLED, assignment=evolve(HERE, node_id="n2"), owed=True), SEEN),
    "sighted-once": (Recorded(None, None, None), evolve(SEEN, listings=1)),
    "orphan-is-absent": (Recorded(None, None, None), ABSENT),
    "no-record": (evolve(SETTLED, status=None), ABSENT),
    "being-deleted": (_with(WorkloadStatus.DELETING, DesiredState.DELETED), SEEN),
    "intent": (evolve(SETTLED, status=evolve(STATUS, intent=INTENT)), STOPPED),
    "on-its-way": (_with(WorkloadStatus.UPDATING), OTHER),
    "lately": (evolve(SETTLED, status=evolve(STATUS, updated_at=LATELY)), ABSENT),
}


def test_every_excuse_has_its_case() -> None:
    """Each row is reached by a case of its own, and says why it stands there."""
    assert [excuse.name for excuse in EXCUSES] == list(CASES)
    assert all(excuse.why for excuse in EXCUSES)


@pytest.mark.parametrize("name", CASES)
def test_each_excuse_holds(name: str) -> None:
    """C17: what is on its way is no drift, and the row that says so is the one that is meant."""
    recorded, sighted = CASES[name]
    excuse = excuse_of(recorded, sighted, GRACE)
    assert excuse is not None
    assert excuse.name == name
    assert classify(recorded, sighted, GRACE) == ()


@pytest.mark.parametrize(
    "status", [each for each in WorkloadStatus if each not in ("Running", "Completed", "Failed")]
)
def test_transitional_states_are_no_drift(status: WorkloadStatus) -> None:
    """C17: Scheduled, Updating, RetryPending and the like may differ from what the agent says."""
    for sighted in (SEEN, STOPPED, OTHER, ABSENT):
        assert classify(_with(status), sighted, GRACE) == ()


@pytest.mark.parametrize(
    "recorded",
    [
        evolve(SETTLED, workload=evolve(WORKLOAD, updated_at=LATELY)),
        evolve(SETTLED, assignment=evolve(HERE, created_at=LATELY)),
        evolve(SETTLED, status=evolve(STATUS, reapply=ReapplyState(last_apply_at=LATELY))),
    ],
)
def test_what_changed_lately_is_no_drift(recorded: Recorded) -> None:
    """A listing may be older than the wish, the assignment or the last apply."""
    assert classify(recorded, ABSENT, GRACE) == ()
    assert classify(recorded, evolve(ABSENT, at=NOW + GRACE), GRACE) != ()


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        (Recorded(None, None, None), OrphanKind.UNKNOWN),
        (_with(WorkloadStatus.DELETING, DesiredState.DELETED), OrphanKind.RESIDUAL),
        (Recorded(WORKLOAD, STATUS, None), OrphanKind.STRAY),
        (SETTLED, OrphanKind.DUPLICATE),
    ],
)
def test_orphans_are_told_apart(recorded: Recorded, kind: OrphanKind) -> None:
    """What the records say of an orphan, and what its agent said of it, is in the finding."""
    sighted: Any = evolve(SEEN, node_id="n9", created_at=START)
    (finding,) = classify(recorded, sighted, GRACE)
    assert finding.orphan is not None
    assert (finding.orphan.kind, finding.orphan.created_at) == (kind, START)
    assert finding.agent_status == "Running"


def test_revisions_are_shown_where_they_differ() -> None:
    """A revision mismatch shows both revisions, as the reference's records do."""
    (finding,) = classify(SETTLED, OTHER, GRACE)
    assert (finding.scheduler_status, finding.agent_status) == ("rev1", "rev0")

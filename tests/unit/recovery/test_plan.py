"""Which reported workloads are imported, and what each of the others is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, spec_revision
from persys_core.model.states import DesiredState, WorkloadStatus, WorkloadType
from persys_core.model.workload import Assignment, Imported, Workload
from persys_core.reconcile import transitions
from persys_core.recovery.plan import JUDGEMENTS, Decision, ImportItem, Recorded, plan_import
from persys_core.recovery.records import records_of
from tests.builders import START, container

LATER = START + timedelta(hours=1)
SPEC = container()
REVISION = spec_revision(SPEC)
UNKNOWN = Recorded()


def report(workload_id: str = "w", **changes: Any) -> AgentReport:
    """A running container of the revision that ``SPEC`` has."""
    values: dict[str, Any] = {
        "state": AgentState.RUNNING,
        "revision_id": REVISION,
        "type": WorkloadType.CONTAINER,
        "desired_state": DesiredState.RUNNING,
        "created_at": START,
    }
    return AgentReport(workload_id, **(values | changes))


def workload(**changes: Any) -> Workload:
    """The record of ``w``."""
    return evolve(Workload("w", "u", SPEC, REVISION, DesiredState.RUNNING, START, START), **changes)


def assigned(node_id: str) -> Assignment:
    """``w`` on a node."""
    return Assignment("w", "u", node_id, SPEC.resources, "test", START)


def planned(
    *reports: tuple[str, AgentReport], recorded: Recorded = UNKNOWN, **options: Any
) -> dict[tuple[str, str], ImportItem]:
    """The plan for what nodes report, by workload and node."""
    listed: dict[str, list[AgentReport]] = {}
    for node_id, each in reports:
        listed.setdefault(node_id, []).append(each)
    plan = plan_import(listed, lambda _: recorded, **options)
    return {(item.workload_id, item.node_id): item for item in plan}


def only(recorded: Recorded = UNKNOWN, **changes: Any) -> ImportItem:
    """The item of one workload that one node reports."""
    older_than = changes.pop("older_than", None)
    told = ("n1", report(**changes))
    [item] = planned(told, recorded=recorded, older_than=older_than).values()
    return item


@pytest.mark.parametrize(
    ("recorded", "changes", "decision", "part"),
    [
        (Recorded(), {}, Decision.IMPORT, "apply it"),
        (Recorded(), {"workload_id": "a b"}, Decision.SKIP, "no such id"),
        (Recorded(), {"type": None}, Decision.SKIP, "which type"),
        (Recorded(owed_at=frozenset({"n1"})), {}, Decision.SKIP, "owed"),
        (Recorded(owed_at=frozenset({"n2"})), {}, Decision.IMPORT, ""),
        (Recorded(workload(desired_state=DesiredState.DELETED)), {}, Decision.SKIP, "deletion"),
        (Recorded(workload(), None, assigned("n1")), {}, Decision.SKIP, "already"),
        (Recorded(workload(), None, assigned("n1")), {"revision_id": ""}, Decision.SKIP, "already"),
        (Recorded(workload(), None, assigned("n2")), {}, Decision.CONFLICT, "recorded on n2"),
        (Recorded(workload()), {}, Decision.IMPORT, "kept"),
        (Recorded(workload(), None, assigned("n1")), {"revision_id": "r2"}, Decision.IMPORT,
         "another revision"),
        (Recorded(workload(), None, assigned("n1"), is_stored=False), {}, Decision.IMPORT,
         "remembers"),
        (Recorded(workload(), None, assigned("n2"), is_stored=False), {}, Decision.CONFLICT, "n2"),
    ],
)  # fmt: skip
def test_every_case_has_its_decision(
    recorded: Recorded, changes: dict[str, Any], decision: Decision, part: str
) -> None:
    """Import, skip or conflict, and why, for what is and is not known of a workload."""
    item = only(recorded, **changes)
    assert item.decision is decision
    assert part in item.detail


def test_a_note_of_a_delete_is_no_workload() -> None:
    """Agent defect 10: the failed delete of what is not there leaves a report behind; it is not
    imported, and makes no second copy of what another node runs."""
    gone = report(
        state=AgentState.FAILED,
        message="failed to delete workload w: workload not found: workload not found",
    )
    plan = planned(("n1", gone), ("n2", report()))
    assert plan["w", "n1"].decision is Decision.SKIP
    assert plan["w", "n2"].decision is Decision.IMPORT


def test_two_copies_are_an_operators_business() -> None:
    """The same id on two nodes is imported from neither; each says where the other one is."""
    plan = planned(("n1", report()), ("n2", report()))
    assert {item.decision for item in plan.values()} == {Decision.CONFLICT}
    assert "n2 has it as well" in plan["w", "n1"].detail
    assert "n1 has it as well" in plan["w", "n2"].detail


def test_with_whole_records_only_old_strangers_are_taken() -> None:
    """In normal mode: what is older than the marker and not recorded at all."""
    assert only(older_than=LATER).decision is Decision.IMPORT
    assert only(older_than=LATER, created_at=None).decision is Decision.SKIP
    assert only(older_than=START - timedelta(seconds=1)).decision is Decision.SKIP
    assert only(Recorded(workload()), older_than=LATER).decision is Decision.SKIP
    there = Recorded(workload(), None, assigned("n1"))
    assert only(there, older_than=LATER, revision_id="r2").decision is Decision.SKIP


def test_every_row_says_what_it_is_about() -> None:
    """Names are unique, and the last row takes everything."""
    assert len({row.name for row in JUDGEMENTS}) == len(JUDGEMENTS)
    assert JUDGEMENTS[-1].name == "unknown"


def test_an_unknown_spec_is_charged_with_nothing_and_marked() -> None:
    """The record has the agent's revision, so that the same spec is recognised later."""
    records = records_of(only(metadata={"container.image": "nginx"}), "uid", LATER)
    assert records.workload.imported == Imported("n1", LATER)
    assert records.workload.revision_id == REVISION
    assert records.workload.uid == "uid"
    assert records.workload.created_at == START
    assert records.workload.spec.resources == Resources()
    assert records.workload.spec.body == ContainerSpec("nginx")
    assert records.status.status is WorkloadStatus.RUNNING
    assert records.status.data_node_id == "n1"


@pytest.mark.parametrize("kind", list(WorkloadType))
def test_every_type_has_a_record(kind: WorkloadType) -> None:
    """Whatever runs can be recorded."""
    assert records_of(only(type=kind), "uid", LATER).workload.spec.type is kind


@pytest.mark.parametrize(
    ("changes", "desired", "status"),
    [
        ({"desired_state": DesiredState.STOPPED, "state": AgentState.STOPPED},
         DesiredState.STOPPED, WorkloadStatus.STOPPED),
        ({"desired_state": None, "state": AgentState.STOPPED},
         DesiredState.STOPPED, WorkloadStatus.STOPPED),
        ({"desired_state": None}, DesiredState.RUNNING, WorkloadStatus.RUNNING),
        ({"state": AgentState.FAILED, "message": "exited with code 1"},
         DesiredState.RUNNING, WorkloadStatus.UNKNOWN),
    ],
)  # fmt: skip
def test_the_agent_says_what_is_wished(
    changes: dict[str, Any], desired: DesiredState, status: WorkloadStatus
) -> None:
    """The wish is the agent's copy of it; what does not run says why nothing is done."""
    records = records_of(only(**changes), "uid", LATER)
    assert records.workload.desired_state is desired
    assert records.status.status is status
    if status is WorkloadStatus.UNKNOWN:
        assert records.status.reason is not None
        assert "exited with code 1" in records.status.reason.message
        assert transitions.IMPORT_ADVICE in records.status.reason.message


def test_a_remembered_record_is_whole() -> None:
    """What this replica still knows is written back as it was, without what was open."""
    ended = evolve(assigned("n1"), released=True, charged=Resources())
    known = Recorded(workload(), None, ended, is_stored=False)
    records = records_of(only(known), "other", LATER)
    assert records.workload == workload()
    assert records.ended == ended


def test_a_newer_revision_than_recorded_is_left_alone() -> None:
    """A store that went back knows an older spec: it is not sent to work that runs a newer one."""
    item = only(Recorded(workload(), None, assigned("n1")), revision_id="newer")
    records = records_of(item, "other", LATER)
    assert (records.workload.uid, records.workload.revision_id) == ("u", "newer")
    assert records.workload.imported is not None

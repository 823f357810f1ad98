from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    SpecBody,
    VmSpec,
    WorkloadSpec,
    secret_values,
)
from persys_core.model.states import DesiredState, ObservedState, RestartPolicy, WorkloadType
from persys_core.model.workload import FailureKind, Workload
from persys_core.reconcile.observe import Sighting, missing, observe_report

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PENDING, RUNNING, STOPPED = AgentState.PENDING, AgentState.RUNNING, AgentState.STOPPED
FAILED, UNKNOWN = AgentState.FAILED, AgentState.UNKNOWN
EXITED_0 = {"container.exit_code": "0", "container.state": "exited"}


def workload(
    desired: DesiredState = DesiredState.RUNNING, restart: RestartPolicy = RestartPolicy.NO
) -> Workload:
    body = ContainerSpec("shop/web:1", env={"DB_PASSWORD": "oh hunter2 ah"}, restart_policy=restart)
    spec = WorkloadSpec(WorkloadType.CONTAINER, Resources(), body)
    return Workload("w", "u", spec, "r1", desired, T0, T0)


def report(
    state: AgentState,
    message: str = "",
    metadata: dict[str, str] | None = None,
    *,
    agent_wants: DesiredState | None = DesiredState.RUNNING,
) -> AgentReport:
    return AgentReport(
        "w", state, "r1", desired_state=agent_wants, message=message, metadata=metadata or {}
    )


def see(seen: AgentReport, wished: Workload | None = None) -> Sighting:
    wished = wished or workload()
    return observe_report(seen, wished, T0, secrets=secret_values(wished.spec))


CREATE_FAILED = {"last_error": "[CREATE_FAILED] x: No such image: shop/web:1"}
STARTED_IN_VAIN = {"last_error": "start failed: no", "container.state": "created"}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (report(PENDING, "restarting"), ObservedState.PENDING),
        (report(RUNNING, "running"), ObservedState.RUNNING),
        (report(STOPPED, "created", {"container.exit_code": "0"}), ObservedState.STOPPED),
        (report(STOPPED, "created", STARTED_IN_VAIN), ObservedState.FAILED),
        (report(STOPPED, "paused"), ObservedState.STOPPED),
        (report(STOPPED, "exited", EXITED_0), ObservedState.COMPLETED),
        (report(STOPPED, "exited", {"container.exit_code": "0"}), ObservedState.COMPLETED),
        (report(STOPPED, "exited"), ObservedState.STOPPED),
        (report(FAILED, "exited with code 1:"), ObservedState.FAILED),
        (report(UNKNOWN, "container not found"), ObservedState.MISSING),
        (report(UNKNOWN, "project not found"), ObservedState.MISSING),
        (report(UNKNOWN, "domain not found"), ObservedState.MISSING),
        (report(UNKNOWN, "no such container"), ObservedState.MISSING),
        (report(UNKNOWN, "it does not exist"), ObservedState.MISSING),
        (report(UNKNOWN, "container not found", CREATE_FAILED), ObservedState.FAILED),
        (report(UNKNOWN, "state 9"), ObservedState.UNKNOWN),
        (report(UNKNOWN, "", CREATE_FAILED), ObservedState.UNKNOWN),
    ],
)
def test_reports_of_a_workload_that_should_run(seen: AgentReport, expected: ObservedState) -> None:
    """Each report stands for one state, and a failure comes with FAILED alone (decisions §2)."""
    sighting = see(seen)
    assert sighting.state is expected
    assert (sighting.failure is not None) == (expected is ObservedState.FAILED)
    assert sighting.revision_id == "r1"


def test_a_masked_failure_has_its_cause_from_the_metadata() -> None:
    """*Container not found* after a failed apply is that apply's failure (decisions §2.2)."""
    sighting = see(report(UNKNOWN, "container not found", CREATE_FAILED))
    assert sighting.failure is not None
    assert sighting.failure.code == "image_not_found"
    assert sighting.failure.at == T0
    assert "shop/web:1" in sighting.message


def test_the_agents_reason_is_used_where_it_has_one() -> None:
    """``failure_reason`` of the metadata is the code; an invalid image name is final."""
    reason = {"failure_reason": "CLOUD_INIT_INVALID", "failure_message": "user_data too long"}
    failure = see(report(UNKNOWN, "domain not found", reason)).failure
    assert failure is not None
    assert (failure.code, failure.kind) == ("invalid_spec", FailureKind.PERMANENT)
    assert failure.message == "user_data too long"


def test_a_heartbeats_code_is_used_where_metadata_is_lacking() -> None:
    """The reason detail of a heartbeat arrives as ``failure_code``."""
    seen = evolve(report(FAILED, "no"), failure_code="INSUFFICIENT_RESOURCES")
    failure = see(seen).failure
    assert failure is not None
    assert failure.code == "admission_refused"


def test_a_failed_compose_up_is_a_failure() -> None:
    """*No containers* with a cause is a failed apply; without one the project is just stopped."""
    spec = WorkloadSpec(WorkloadType.COMPOSE, Resources(), ComposeSpec("services: {}"))
    project = evolve(workload(), spec=spec)
    failed = report(STOPPED, "no containers", {"last_error": "create failed: yaml: line 3: bad"})
    assert see(failed, project).failure is not None
    assert see(failed, project).state is ObservedState.FAILED
    assert see(report(STOPPED, "no containers"), project).state is ObservedState.STOPPED
    assert see(report(STOPPED, "0/2 containers running"), project).state is ObservedState.STOPPED


def test_a_cause_left_from_earlier_does_not_fail_what_runs() -> None:
    """Running is running, whatever old failures the metadata still holds (defect C8)."""
    stale = {**CREATE_FAILED, "failure_reason": "INVALID_IMAGE", "retry_terminal": "true"}
    assert see(report(RUNNING, "running", stale)).failure is None


def test_what_the_agent_is_making_anew_is_missing_and_not_failed() -> None:
    """The agent's own repair notes a loss; it is no failed apply, and spends no attempt."""
    lost = {"failure_reason": "RUNTIME_RESOURCE_MISSING", "last_error": "container not found"}
    assert see(report(UNKNOWN, "container not found", lost)).state is ObservedState.MISSING
    in_vain = {**lost, "last_error": "recreate failed: No such image: shop/web:1"}
    assert see(report(UNKNOWN, "container not found", in_vain)).state is ObservedState.FAILED


def test_a_delete_of_the_unknown_leaves_it_missing() -> None:
    """An agent that never had the workload says *failed* after a delete (agent defect 10)."""
    text = "failed to delete workload w: workload not found: workload not found"
    assert see(report(FAILED, text)).state is ObservedState.MISSING


def test_an_agent_that_keeps_a_record_is_not_rid_of_a_deleted_workload() -> None:
    """While the agent still lists it, a deletion is not confirmed: the agent could revive it."""
    doomed = workload(DesiredState.DELETED)
    for metadata in ({}, CREATE_FAILED):
        seen = report(UNKNOWN, "container not found", metadata)
        assert see(seen, doomed).state is ObservedState.UNKNOWN


@pytest.mark.parametrize("status", [TaskStatus.PENDING, TaskStatus.RUNNING])
def test_a_task_in_flight_hides_everything_else(status: TaskStatus) -> None:
    """While the agent is at work, old causes and states say nothing (decisions §2.3)."""
    by_field = evolve(report(PENDING, "task running", CREATE_FAILED), task_status=status)
    by_metadata = report(UNKNOWN, "container not found", {**CREATE_FAILED, "task_status": status})
    for seen in (by_field, by_metadata):
        sighting = see(seen)
        assert (sighting.state, sighting.task_in_flight) == (ObservedState.PENDING, True)
        assert sighting.failure is None


def test_an_ended_task_is_not_in_flight() -> None:
    """The newest task stays visible after its end; only pending and running ones count."""
    for status in (TaskStatus.NONE, TaskStatus.COMPLETED, TaskStatus.FAILED):
        assert not see(evolve(report(RUNNING), task_status=status)).task_in_flight


@pytest.mark.parametrize(
    ("restart", "expected"),
    [
        (RestartPolicy.NO, ObservedState.COMPLETED),
        (RestartPolicy.ON_FAILURE, ObservedState.COMPLETED),
        (RestartPolicy.ALWAYS, ObservedState.STOPPED),
        (RestartPolicy.UNLESS_STOPPED, ObservedState.STOPPED),
    ],
)
def test_completed_depends_on_the_restart_policy(
    restart: RestartPolicy, expected: ObservedState
) -> None:
    """Exit 0 is the end under ``no`` and ``on-failure`` alone (decisions, values: Completed)."""
    assert see(report(STOPPED, "exited", EXITED_0), workload(restart=restart)).state is expected


@pytest.mark.parametrize(
    ("since", "expected"),
    [(0, ObservedState.STOPPED), (60, ObservedState.COMPLETED), (100, ObservedState.STOPPED)],
)
def test_a_restart_by_the_agent_itself_is_no_end(since: int, expected: ObservedState) -> None:
    """An agent stops what was pending for too long and starts it again: an exit code of 0 in
    between says nothing. The note of it stays for ever, so later ends do count; but not one from
    before the machine was down, since the start may never have come (simulator, seed 30167)."""
    noted = {
        **EXITED_0,
        "pending_recovery_action": "restart",
        "container.finished_at": T0.isoformat(),
    }
    seen = evolve(report(STOPPED, "exited", noted), reported_at=T0 + timedelta(seconds=since))
    assert see(seen).state is expected


def test_what_was_told_to_stop_did_not_complete() -> None:
    """Exit 0 after a stop is a stop, whether we or the agent still want it stopped."""
    told = report(STOPPED, "exited", EXITED_0, agent_wants=DesiredState.STOPPED)
    assert see(told).state is ObservedState.STOPPED
    stopped = workload(DesiredState.STOPPED)
    assert see(report(STOPPED, "exited", EXITED_0), stopped).state is ObservedState.STOPPED


def test_an_agent_that_does_not_say_what_it_wants_may_complete() -> None:
    """A report without the agent's own wish is taken at its word."""
    assert (
        see(report(STOPPED, "exited", EXITED_0, agent_wants=None)).state is ObservedState.COMPLETED
    )


def test_another_exit_code_is_no_success() -> None:
    """A stopped container with another code, or none, did not complete."""
    for code in ("1", "", "00"):
        metadata = {**EXITED_0, "container.exit_code": code}
        assert see(report(STOPPED, "exited", metadata)).state is ObservedState.STOPPED


def test_a_workload_that_should_rest_has_not_failed_by_resting() -> None:
    """Causes that are left behind do not turn a wished stop into a failure."""
    seen = report(STOPPED, "exited", CREATE_FAILED)
    assert see(seen, workload(DesiredState.STOPPED)).state is ObservedState.STOPPED


def test_an_old_agents_heartbeat_is_a_hint() -> None:
    """Without a revision the sighting says that it cannot be relied on (decisions §2.10)."""
    assert see(report(RUNNING)).has_revision
    assert not see(evolve(report(RUNNING), revision_id="")).has_revision


def test_a_crash_shows_the_end_of_what_it_printed() -> None:
    """The last lines of stderr tell people why; they are bounded."""
    metadata = {"container.stderr": "line\n" * 100_000 + "Error: no such table", "last_error": "x"}
    sighting = see(report(FAILED, "exited with code 3:", metadata))
    assert sighting.failure is not None
    assert sighting.failure.code == "exited"
    assert sighting.failure.message.startswith("exited with code 3; stderr: …")
    assert sighting.failure.message.endswith("Error: no such table")
    assert len(sighting.message.encode()) <= 1024


@pytest.mark.parametrize("padding", [0, 150, 286, 288, 290, 294, 4080, 4090])
def test_secrets_of_the_spec_never_show(padding: int) -> None:
    """An echoed password does not spread, wherever a text is cut (A04)."""
    echo = "oh hunter2 ah" + " x" * (padding // 2)
    by_stderr = report(FAILED, "exited with code 1:", {"container.stderr": "y" * 500 + " " + echo})
    by_error = report(UNKNOWN, "container not found", {"last_error": "z " * padding + echo})
    by_message = report(RUNNING, "u " * padding + echo)
    for seen in (by_stderr, by_error, by_message):
        assert "hunter2" not in repr(see(seen))


def test_what_an_agent_does_not_list_is_missing() -> None:
    """An answer without the workload is a sighting too."""
    assert missing().state is ObservedState.MISSING
    assert missing().failure is None


@pytest.mark.parametrize(
    ("seen", "body", "ended"),
    [
        (report(STOPPED, "0/1 containers running"), ComposeSpec("services: {}"), True),
        (report(STOPPED, "shutdown (reason=shutdown)"), VmSpec(1, 512), True),
        (report(STOPPED, "0/1", agent_wants=None), ComposeSpec("services: {}"), True),
        (report(STOPPED, "0/1", agent_wants=DesiredState.STOPPED), ComposeSpec("a: b"), False),
        (report(RUNNING, "1/1 containers running"), ComposeSpec("services: {}"), False),
        (report(STOPPED, "created"), ContainerSpec("a"), False),
    ],
)
def test_what_rests_without_having_been_told_to_has_ended(
    seen: AgentReport, body: SpecBody, *, ended: bool
) -> None:
    """Containers are left to their restart policy, and a stop that the agent knows of is none."""
    wished = evolve(workload(), spec=WorkloadSpec(WorkloadType.CONTAINER, Resources(), body))
    assert see(seen, wished).ended is ended


@pytest.mark.parametrize("state", [STOPPED, FAILED, UNKNOWN])
def test_an_agent_that_means_to_run_what_rests_is_seen_through(state: AgentState) -> None:
    """What the user stopped is not at rest for long where its agent was last told to run it; a
    report that does not say so, or of what runs anyway, tells nothing."""
    stopped = workload(DesiredState.STOPPED)
    assert see(report(state, "container not found"), stopped).will_start
    assert not see(report(state, "container not found")).will_start
    assert not see(report(state, "x", agent_wants=DesiredState.STOPPED), stopped).will_start
    assert not see(report(state, "x", agent_wants=None), stopped).will_start
    assert not see(report(RUNNING, "x"), stopped).will_start

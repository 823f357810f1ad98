from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from persys_agent.runtimes.port import FailureCode, Order, Owner, RuntimeFailedError
from persys_agent.testing import MemoryRuntime
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.retry.failure import classify_failure
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench, apply_message, volume

pytestmark = pytest.mark.slow


@virtual_time()
async def test_an_apply_runs_in_the_end(clock: VirtualClock, tmp_path: Path) -> None:
    """What is accepted is made, started and told with its revision."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        report = await node.applied(apply_message())
        assert report.state is AgentState.RUNNING
        assert (report.revision_id, report.desired_state) == ("r1", DesiredState.RUNNING)
        assert bench.host.made["w1"] == bench.host.started["w1"] == 1


@virtual_time()
async def test_the_same_apply_again_changes_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    """Same revision and spec: nothing is made or started again, and the age is kept (A11)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        first = await node.applied(apply_message())
        await clock.sleep(timedelta(minutes=1))
        again = await node.applied(apply_message())
        assert bench.host.made["w1"] == bench.host.started["w1"] == 1
        assert again.created_at == first.created_at


@virtual_time()
async def test_a_changed_spec_under_one_revision_counts(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """The spec's hash stands beside the revision: a changed one is carried out (A14)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        report = await node.applied(apply_message(image="other"))
        assert report.state is AgentState.RUNNING
        assert bench.host.made["w1"] == 2


@virtual_time()
async def test_stopping_and_starting_keeps_the_instance(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A change of the desired state alone makes nothing anew."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message())
        stopped = await node.applied(apply_message(stopped=True))
        assert (stopped.state, stopped.desired_state) == (AgentState.STOPPED, DesiredState.STOPPED)
        assert (await node.applied(apply_message())).state is AgentState.RUNNING
        assert (bench.host.made["w1"], bench.host.started["w1"]) == (1, 2)


@virtual_time()
async def test_a_failed_apply_stays_visible(clock: VirtualClock, tmp_path: Path) -> None:
    """Failed, with code and cause, at every look until something succeeds (A1, A7)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(image="missing"))
        report = await node.report()
        for _ in range(3):
            assert report.state is AgentState.FAILED
            assert report.metadata["failure_reason"] == "INVALID_IMAGE"
            assert "[CREATE_FAILED]" in report.metadata["last_error"]
            assert report.metadata["retryable"] == "true"
            assert "last_failure_at" in report.metadata
            await clock.sleep(timedelta(minutes=2))
            await node.look()
            report = await node.report()
        assert node.errors() == [f"failed to apply workload w1: {report.metadata['last_error']}"]
        failure = classify_failure(report.failure_code, report.message, clock.now())
        assert failure.code == "image_not_found"
        healed = await node.applied(apply_message(image="nginx"))
        assert healed.state is AgentState.RUNNING
        assert "last_error" not in healed.metadata


@virtual_time()
async def test_the_agent_does_not_retry_what_never_ran(clock: VirtualClock, tmp_path: Path) -> None:
    """A failed apply is the scheduler's to try again: it may place it elsewhere (A4, A16)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(image="missing"))
        for _ in range(10):
            await clock.sleep(timedelta(minutes=1))
            await node.look()
        assert bench.host.faults.count("create", "w1") == 1


@virtual_time()
async def test_a_failed_start_takes_back_what_was_made(clock: VirtualClock, tmp_path: Path) -> None:
    """The instance goes before its volumes are detached, and their data stays (A19, A37)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        report = await node.applied(apply_message(image="nostart", volumes=(volume("data"),)))
        assert report.state is AgentState.FAILED
        assert "[START_FAILED]" in report.message
        assert bench.host.instance("w1") is None
        assert bench.disks.attached == set()
        assert bench.disks.volumes == {"data"}
        assert bench.disks.faults.count("delete_data", "data") == 0


@virtual_time()
async def test_a_volume_that_fails_undoes_only_what_was_attached_now(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """What an older revision has stays attached, and it runs on."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(volumes=(volume("old"),)))
        wanted = (volume("old"), volume("new"), volume("lost", driver="nfs"))
        report = await node.applied(apply_message(revision="r2", volumes=wanted))
        assert report.state is AgentState.FAILED
        assert report.metadata["failure_reason"] == "STORAGE_ATTACH_FAILED"
        assert 'storage driver "nfs" is not registered' in report.message
        assert bench.disks.attached == {("old", "w1")}
        instance = bench.host.instance("w1")
        assert instance is not None
        assert (instance.revision_id, instance.state) == ("r1", AgentState.RUNNING)


@virtual_time()
async def test_a_new_revision_lets_go_of_volumes_it_does_not_have(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """They are detached after the replacement, with their data kept (A38)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(volumes=(volume("old"), volume("both"))))
        await node.applied(apply_message(revision="r2", volumes=(volume("both"),)))
        assert bench.disks.attached == {("both", "w1")}
        assert bench.disks.volumes == {"old", "both"}


@virtual_time()
async def test_admission_goes_by_what_is_asked(clock: VirtualClock, tmp_path: Path) -> None:
    """The refusal has the numbers, runs nothing, and counts as this node's (A25)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message("w1", cpu=3000))
        report = await node.applied(apply_message("w2", cpu=1500))
        assert report.state is AgentState.FAILED
        assert report.metadata["failure_reason"] == "RESOURCE_QUOTA_EXCEEDED"
        assert "asks for 1500 millicores, 1000 are free of 4000" in report.message
        assert classify_failure("", report.message, clock.now()).code == "admission_refused"
        assert bench.host.instance("w2") is None
        assert (await node.applied(apply_message("w3", cpu=1000))).state is AgentState.RUNNING


@virtual_time()
async def test_what_was_refused_or_has_ended_takes_no_room(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A job that is done, a failed one and a stopped one leave their share to others."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message("job", image="exit0", cpu=3000))
        await node.applied(apply_message("bad", image="missing", cpu=3000))
        await node.applied(apply_message("off", cpu=3000, stopped=True))
        assert (await node.applied(apply_message("w1", cpu=4000))).state is AgentState.RUNNING
        assert node.assembly.works.executor.promised == Resources.of(
            cpu_millicores=4000, memory_mb=64
        )


@virtual_time()
async def test_a_finished_job_runs_once(clock: VirtualClock, tmp_path: Path) -> None:
    """Exit code 0 under policy no is an end: neither the loop nor a repeated apply runs it again
    (A8)."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        report = await node.applied(apply_message(image="exit0"))
        assert report.state is AgentState.STOPPED
        assert report.metadata["container.exit_code"] == "0"
        for _ in range(5):
            await clock.sleep(timedelta(minutes=1))
            await node.look()
            await node.applied(apply_message(image="exit0"))
        assert bench.host.started["w1"] == 1


@virtual_time()
async def test_a_job_can_be_run_again_on_purpose(clock: VirtualClock, tmp_path: Path) -> None:
    """Stopped and wanted again is a wish to run it again."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        await node.applied(apply_message(image="exit0"))
        await node.applied(apply_message(image="exit0", stopped=True))
        await node.applied(apply_message(image="exit0"))
        assert bench.host.started["w1"] == 2


@virtual_time()
async def test_the_name_of_a_foreign_instance_is_left_alone(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Another node's work on the same machine is neither replaced nor deleted nor listed (A3)."""
    bench = Bench(clock, tmp_path)
    other = MemoryRuntime(bench.host, Owner("n2"))
    spec = WorkloadSpec(WorkloadType.CONTAINER, Resources(), ContainerSpec("nginx"))
    await other.create(Order("w1", "r1", "h", spec))
    await other.start("w1")
    async with bench.node() as node:
        assert await node.assembly.works.board.reports() == []
        report = await node.applied(apply_message())
        assert report.state is AgentState.FAILED
        assert report.metadata["failure_reason"] == "NAME_CONFLICT"
        assert report.metadata["retryable"] == "false"
        await node.delete()
        await node.settled()
        await node.look()
    theirs = await other.inspect("w1")
    assert theirs is not None
    assert theirs.state is AgentState.RUNNING


@virtual_time()
async def test_a_runtime_that_is_away_fails_an_apply_without_blame(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """The text counts as the node's trouble, and the words of a socket deceive nobody."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        bench.host.is_up = False
        report = await node.applied(apply_message())
        assert report.state is AgentState.FAILED
        failure = classify_failure(report.failure_code, report.message, clock.now())
        assert failure.code == "runtime_unavailable"


@virtual_time()
async def test_a_type_without_a_runtime_says_so(clock: VirtualClock, tmp_path: Path) -> None:
    """The words are those of the agents in the field."""
    bench = Bench(clock, tmp_path, kinds=(WorkloadType.VM,))
    async with bench.node() as node:
        report = await node.applied(apply_message())
        assert "runtime not available for type: container" in report.message


@virtual_time()
async def test_no_secret_of_a_spec_is_told(clock: VirtualClock, tmp_path: Path) -> None:
    """A runtime's text that echoes one comes out masked, in status and history."""
    bench = Bench(clock, tmp_path)
    bench.host.faults.fail(
        "create", RuntimeFailedError(FailureCode.RUNTIME_ERROR, "bad value tr0ub4dor")
    )
    async with bench.node() as node:
        report = await node.applied(apply_message(env={"DB_PASSWORD": "tr0ub4dor"}))
        assert "tr0ub4dor" not in repr(report) + repr(node.errors())


@virtual_time()
async def test_a_runtime_that_hangs_holds_no_line_up_for_ever(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A start that never ends fails in the end, and the delete behind it is carried out."""
    bench = Bench(clock, tmp_path)
    bench.host.faults.delays["start"] = timedelta(days=30)
    async with bench.node() as node:
        await node.apply(apply_message())
        await node.delete()
        await node.settled()
        assert "no answer within" in node.errors()[0]
        assert await node.assembly.works.board.report("w1") is None


@pytest.mark.parametrize("policy", ["no", "on-failure"])
@virtual_time()
async def test_a_crash_is_the_schedulers_to_answer(
    clock: VirtualClock, tmp_path: Path, policy: str
) -> None:
    """Under these policies the agent tells of the end and starts nothing."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        report = await node.applied(apply_message(image="crash", policy=policy))
        assert (report.state, report.message) == (AgentState.FAILED, "exited with code 1")
        await clock.sleep(timedelta(minutes=5))
        await node.look()
        assert bench.host.started["w1"] == 1
        await node.applied(apply_message(image="crash", policy=policy))
        assert (bench.host.made["w1"], bench.host.started["w1"]) == (1, 2)

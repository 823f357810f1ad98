"""--wait: what is waited for, how it ends, and what is seen meanwhile."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.exit_codes import ExitCode
from persysctl.wait import Goal, Standing, judge
from tests.unit.ctl.harness import FakeScheduler, Refusal, Result, ask, at, call, served
from tests.unit.ctl.test_commands import BIG, MANIFEST, WAITING, workload

pytestmark = pytest.mark.slow


class Script:
    """Changes a workload at each look, in order; the last view stays."""

    def __init__(self, fake: FakeScheduler, *views: pb.WorkloadView | None) -> None:
        self._fake = fake
        self._views = list(views)
        fake.on_get = self.step

    def step(self, workload_id: str) -> None:
        """Put the next view in place before it is read."""
        if not self._views:
            return
        view = self._views.pop(0)
        if view is None:
            self._fake.workloads.pop(workload_id, None)
        else:
            self._fake.workloads[workload_id] = view
        # The event makes the next look come at once; without it the test would only be slower.
        self._fake.live.put_nowait(pb.SchedulerEventView(id="e", workload_id=workload_id))


@pytest.mark.parametrize(
    ("goal", "view", "standing"),
    [
        (Goal(), workload("w"), Standing.REACHED),
        (Goal(), workload("w", status="Completed"), Standing.REACHED),
        (Goal(), workload("w", status="Pending"), Standing.NOT_YET),
        (Goal(), workload("w", status="RetryPending"), Standing.NOT_YET),
        (Goal(), workload("w", status="Failed"), Standing.FAILED),
        (Goal(), workload("w", status="Failed", retry_next_at=at(5)), Standing.NOT_YET),
        (Goal(), workload("w", status="Failed", desired_state="Stopped"), Standing.NOT_YET),
        (Goal(), workload("w", status="Deleted"), Standing.FAILED),
        (Goal(), None, Standing.FAILED),
        (Goal(revision_id="r2"), workload("w"), Standing.NOT_YET),
        (Goal(revision_id="r1"), workload("w"), Standing.REACHED),
        (Goal("Stopped"), workload("w"), Standing.NOT_YET),
        (Goal("Stopped"), workload("w", status="Stopped"), Standing.REACHED),
        (Goal("Stopped"), workload("w", status="Completed"), Standing.REACHED),
        (Goal("Running"), workload("w", status="Stopped"), Standing.NOT_YET),
        (Goal(gone=True), workload("w"), Standing.NOT_YET),
        (Goal(gone=True), workload("w", status="Failed"), Standing.NOT_YET),
        (Goal(gone=True), workload("w", status="Deleted"), Standing.REACHED),
        (Goal(gone=True), None, Standing.REACHED),
    ],
)
def test_judgement(goal: Goal, view: pb.WorkloadView | None, standing: Standing) -> None:
    """The state of the view, its revision and its retries say how it stands to the goal."""
    assert judge(goal, view).standing is standing


@pytest.mark.asyncio
async def test_apply_waits_until_it_runs() -> None:
    """The answer to apply is not the end: it ends with the new revision running."""
    fake = FakeScheduler()
    old = workload("web", revision_id="r0")
    Script(fake, old, workload("web", status="Pending"), workload("web"))
    result = await ask(fake, "apply", "-f", "-", "--wait", stdin=MANIFEST)
    assert result.out == "web created (revision r1)\nweb is Running on n1\n"
    assert (result.code, result.err) == (ExitCode.DONE, "")


@pytest.mark.asyncio
async def test_apply_waits_for_the_stored_desired_state() -> None:
    """A manifest without desiredState keeps a stopped workload stopped, and that is waited for."""
    answer = pb.ApplyWorkloadResponse(success=True, outcome="Updated", revision_id="r1")
    fake = FakeScheduler(apply_answers={"web": answer})
    fake.workloads["web"] = workload("web", desired_state="Stopped", status="Stopped")
    result = await ask(fake, "apply", "-f", "-", "--wait", stdin=MANIFEST)
    assert result.out == "web updated (revision r1)\nweb is Stopped on n1\n"


@pytest.mark.asyncio
async def test_a_failed_workload_is_a_failure() -> None:
    """What failed for good ends in 1 at once, with the reason."""
    fake = FakeScheduler()
    reason = pb.ReasonDetail(code="IMAGE_NOT_FOUND", message="no such image")
    Script(fake, workload("web", status="Failed", reason=reason))
    result = await ask(fake, "apply", "-f", "-", "--wait", stdin=MANIFEST)
    assert (result.code, result.err) == (
        ExitCode.FAILED,
        "web failed: Failed on n1: no such image\n",
    )


@pytest.mark.asyncio
async def test_pending_in_time_is_not_yet() -> None:
    """What still waits when the time is over ends in 2 and says why it waits."""
    fake = FakeScheduler()
    view = pb.WorkloadView(workload_id="big", status="Pending", explanation=WAITING)
    view.revision_id = "r1"
    fake.workloads["big"] = view
    result = await ask(fake, "apply", "-f", "-", "--wait", "--timeout", "200ms", stdin=BIG)
    assert result.code == ExitCode.NOT_YET
    assert "big is not there after 0.2 s: Pending: 0/3 nodes: 3 cpu" in result.err
    assert "persysctl explain big" in result.err


@pytest.mark.asyncio
async def test_waiting_outlives_a_scheduler_that_is_away() -> None:
    """A scheduler that cannot answer just now is asked again until the time is over."""
    fake = FakeScheduler(refusals={"GetWorkload": Refusal(grpc.StatusCode.UNAVAILABLE, "busy")})
    fake.workloads["web"] = workload("web")
    looks: list[str] = []

    def recover(workload_id: str) -> None:
        looks.append(workload_id)
        if len(looks) == 2:
            fake.refusals.clear()

    fake.on_get = recover
    result = await ask(fake, "start", "workload", "web", "--wait")
    assert (result.code, looks) == (ExitCode.DONE, ["web", "web"])


@pytest.mark.asyncio
async def test_waiting_works_without_events() -> None:
    """A scheduler without WatchEvents is looked at from time to time."""
    fake = FakeScheduler(refusals={"WatchEvents": Refusal(grpc.StatusCode.UNIMPLEMENTED)})
    Script(fake, workload("web", status="Pending"), workload("web"))
    result = await ask(fake, "start", "workload", "web", "--wait")
    assert result.code == ExitCode.DONE


@pytest.mark.asyncio
async def test_delete_waits_until_it_is_gone() -> None:
    """Deleting is done when the workload is no longer there."""
    fake = FakeScheduler(workloads={"web": workload("web")})
    Script(fake, workload("web", status="Deleting"), None)
    result = await ask(fake, "delete", "workload", "web", "--wait")
    assert (result.code, result.out) == (ExitCode.DONE, "web is being deleted\nweb is gone\n")


def deleted(**details: str) -> pb.SchedulerEventView:
    """The event of a deletion."""
    return pb.SchedulerEventView(
        id="e1", type="WorkloadDeleted", workload_id="web", node_id="n1", details=details
    )


@pytest.mark.parametrize(
    ("events", "end"),
    [
        ([deleted(outcome="Tombstoned")],
         "web: its records are gone; n1 is silent and owes the deletion"),
        ([deleted(outcome="Tombstoned"), deleted(outcome="Deleted")], "web is gone"),
        ([deleted()], "web is gone"),
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_delete_says_what_a_silent_node_owes(
    events: list[pb.SchedulerEventView], end: str
) -> None:
    """Gone from the records is not gone from the machine; the newest event knows which it is."""
    fake = FakeScheduler(workloads={"web": workload("web")}, events=events)
    result = await ask(fake, "delete", "workload", "web", "--wait")
    assert (result.code, result.out.splitlines()[-1]) == (ExitCode.DONE, end)
    fake = FakeScheduler(workloads={"web": workload("web")}, events=events)
    fake.refusals["ListEvents"] = Refusal(grpc.StatusCode.UNIMPLEMENTED)
    result = await ask(fake, "delete", "workload", "web", "--wait")
    assert (result.code, result.out.splitlines()[-1]) == (ExitCode.DONE, "web is gone")


@pytest.mark.asyncio
async def test_a_forced_delete_says_that_its_node_owes_it() -> None:
    """Its node answers, so it is told; until then the copy runs."""
    fake = FakeScheduler(workloads={"web": workload("web")}, delete_outcome="Tombstoned")
    result = await ask(fake, "delete", "workload", "web", "--force", "--wait")
    assert result.out.splitlines()[-1] == "web: its records are gone; its node owes the deletion"


@pytest.mark.asyncio
async def test_force_is_explained_as_the_operators_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who forces a delete answers for the exclusive volumes of a silent node."""
    with pytest.raises(SystemExit):
        await call("delete", "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "your own word that the copy there writes no more" in text
    assert "exclusive volumes are free at once" in text


@pytest.mark.asyncio
async def test_stop_waits_and_answers_programs() -> None:
    """With -o json the final view is part of the one document."""
    fake = FakeScheduler()
    Script(fake, workload("web"), workload("web", status="Stopped", desired_state="Stopped"))
    result = await ask(fake, "stop", "workload", "web", "--wait", "-o", "json")
    assert result.code == ExitCode.DONE
    assert json.loads(result.out)["workload"]["status"] == "Stopped"


@pytest.mark.asyncio
async def test_a_person_sees_progress_on_standard_error() -> None:
    """On a terminal the wait is visible on standard error and leaves standard output clean."""
    fake = FakeScheduler()
    Script(fake, workload("web", status="Pending", failure_reason="no room yet"), workload("web"))
    async with served(fake) as address:
        argv = ("start", "workload", "web", "--wait", "--server", address)
        result: Result = await call(*argv, terminal=True)
    assert result.code == ExitCode.DONE
    assert "web" in result.err
    assert "\x1b" not in result.out
    assert result.out.endswith("web is Running on n1\n")


@pytest.mark.asyncio
async def test_an_interrupted_wait_leaves_nothing_running() -> None:
    """Ctrl-C cancels the call; the watching task goes with it."""
    fake = FakeScheduler(workloads={"web": workload("web", status="Pending")})
    looked = asyncio.Event()
    fake.on_get = lambda _: looked.set()
    async with served(fake) as address:
        before = asyncio.all_tasks()
        argv = ("start", "workload", "web", "--wait", "--server", address)
        waiting = asyncio.create_task(call(*argv))
        await looked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        ours = {task for task in asyncio.all_tasks() - before if "persysctl" in repr(task)}
        assert ours == set()

"""Drains, taints and labels at the command line: what is sent, seen and waited for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.client import Client
from persysctl.draining import DrainEnd, judge_drain, wait_for_drain
from persysctl.exit_codes import ExitCode
from persysctl.settings import ServerSettings
from tests.unit.ctl.harness import FakeScheduler, Refusal, ask, at, call, served
from tests.unit.ctl.test_commands import kinds, workload

pytestmark = pytest.mark.slow

BIG = pb.DrainBlocker(workload_id="big", code="cpu", reason="0/1 nodes: 1 cpu")


def so_far(moved: int, remaining: int, moving: int = 0, **more: Any) -> pb.GetDrainProgressResponse:
    """How far a drain is."""
    return pb.GetDrainProgressResponse(moved=moved, remaining=remaining, moving=moving, **more)


def cluster(*steps: pb.GetDrainProgressResponse) -> FakeScheduler:
    """One node; each look at its drain sees the next step, and the last one stays."""
    fake = FakeScheduler(nodes={"n1": pb.NodeView(node_id="n1", status="Ready")})
    left = list(steps)
    if left:
        fake.progress["n1"] = left[0]

    def step(node_id: str) -> None:
        if left:
            fake.progress[node_id] = left.pop(0)

    fake.on_progress = step
    return fake


@pytest.mark.parametrize(
    ("progress", "end"),
    [
        (so_far(3, 0), DrainEnd.EMPTY),
        (so_far(0, 0), DrainEnd.EMPTY),
        (so_far(3, 0, 1), DrainEnd.NOT_YET),
        (so_far(1, 2), DrainEnd.NOT_YET),
        (so_far(1, 2, blocked=[BIG]), DrainEnd.NOT_YET),
        (so_far(2, 1, 1, blocked=[BIG]), DrainEnd.NOT_YET),
        (so_far(2, 1, blocked=[BIG]), DrainEnd.BLOCKED),
        (so_far(2, 1, blocked=[BIG], deadline_at=at(60)), DrainEnd.BLOCKED),
        (so_far(2, 1, blocked=[BIG], deadline_at=at(60), force=True), DrainEnd.NOT_YET),
    ],
)
def test_how_a_drain_stands(progress: pb.GetDrainProgressResponse, end: DrainEnd) -> None:
    """Empty also of old copies; blocked only where nothing moves and nothing will be stopped."""
    assert judge_drain(progress, draining=True) is end
    assert judge_drain(progress, draining=False) is DrainEnd.ENDED


@pytest.mark.asyncio
async def test_a_drain_is_ordered_in_full() -> None:
    """Reason, deadline in seconds and force are passed on; what is to move is said."""
    fake = cluster(so_far(0, 2))
    argv = ("--reason", "disk", "--deadline", "5m", "--force")
    result = await ask(fake, "node", "drain", "n1", *argv)
    request = pb.DrainNodeRequest(node_id="n1", reason="disk", deadline_seconds=300, force=True)
    assert fake.asked == [request]
    assert (result.code, result.out) == (
        ExitCode.DONE,
        "n1 is draining: 2 workloads to move\npersysctl node status n1 says how far it is\n",
    )


@pytest.mark.asyncio
async def test_a_drain_is_waited_for() -> None:
    """It ends when nothing runs there any more, not even an old copy."""
    fake = cluster(so_far(0, 2), so_far(1, 1, 1), so_far(2, 0, 1), so_far(2, 0))
    result = await ask(fake, "node", "drain", "n1", "--wait")
    assert (result.code, result.err) == (ExitCode.DONE, "")
    assert result.out == "n1 is draining: 2 workloads to move\nn1 is empty: 2 workloads moved\n"
    assert kinds(fake.asked).count("GetDrainProgress") == 4


@pytest.mark.asyncio
async def test_a_drain_says_what_it_replaces() -> None:
    """A second order holds as a whole, so the terms of the first that are gone are told."""
    fake = cluster(so_far(0, 1))
    fake.replaced = 'no deadline, reason "disk"'
    result = await ask(fake, "node", "drain", "n1", "--deadline", "5m")
    assert result.out.splitlines()[:2] == [
        "n1 is draining: 1 workload to move",
        'this order replaces the earlier one (no deadline, reason "disk")',
    ]


@pytest.mark.asyncio
async def test_what_was_stopped_is_not_what_moved() -> None:
    """Neither in the last word nor on the way."""
    fake = cluster(so_far(1, 2, stopped=1, force=True), so_far(1, 1, stopped=2, force=True))
    result = await ask(fake, "node", "drain", "n1", "--wait", "--timeout", "200ms")
    assert result.err.startswith("n1 is not empty after 0.2 s: 1 of 4 moved, 2 stopped\n")
    fake = cluster(so_far(1, 0, stopped=2, force=True))
    result = await ask(fake, "node", "drain", "n1", "--wait")
    assert result.out.splitlines()[-1] == (
        "n1 is empty: 1 workload moved, 2 stopped at the deadline without another place"
    )
    assert "Stopped    2 at the deadline" in (await ask(fake, "node", "status", "n1")).out


@pytest.mark.asyncio
async def test_owed_deletions_are_named() -> None:
    """Drained or not: what the node has yet to delete stands in its status, the first by name."""
    fake = cluster(so_far(0, 0, 2, owed_workload_ids=["w5", "w6"]))
    out = (await ask(fake, "node", "status", "n1")).out
    assert "not yet deleted there, owed by the node: w5, w6\n" in out
    many = [f"w{number}" for number in range(25)]
    fake = cluster(so_far(0, 0, 25, owed_workload_ids=many))
    out = " ".join((await ask(fake, "node", "status", "n1")).out.split())
    assert "w18, w19 and 5 more" in out
    out = (await ask(cluster(so_far(0, 0)), "node", "status", "n1")).out
    assert "owed" not in out


@pytest.mark.asyncio
async def test_orphans_on_an_empty_node_are_told() -> None:
    """Empty of what the records know: what else runs there is named, and does not fail it."""
    fake = cluster(so_far(2, 0))
    fake.drifts = [
        pb.DriftView(node_id="n1", workload_id="ghost", type="orphan_on_agent"),
        pb.DriftView(node_id="n1", workload_id="w", type="state_mismatch"),
    ]
    result = await ask(fake, "node", "drain", "n1", "--wait")
    assert (result.code, result.err) == (
        ExitCode.DONE,
        "1 workload that no record assigns to n1 still runs there: persysctl drift list --node"
        " n1\n",
    )
    fake.refusals["ListDrifts"] = Refusal(grpc.StatusCode.UNIMPLEMENTED)
    result = await ask(fake, "node", "drain", "n1", "--wait")
    assert (result.code, result.err) == (ExitCode.DONE, "")


@pytest.mark.asyncio
async def test_what_has_not_left_in_time_is_listed() -> None:
    """The time is over: exit code 2, each blocker with its reason, and what goes on."""
    fake = cluster(so_far(1, 2, blocked=[BIG]))
    result = await ask(fake, "node", "drain", "n1", "--wait", "--timeout", "200ms")
    assert result.code == ExitCode.NOT_YET
    assert result.err.splitlines() == [
        "n1 is not empty after 0.2 s: 1 of 3 moved, 1 cannot leave (big: 0/1 nodes: 1 cpu)",
        "  big: 0/1 nodes: 1 cpu",
        "the drain goes on: persysctl node status n1; node undrain n1 ends it",
    ]


@pytest.mark.asyncio
async def test_a_stuck_drain_is_not_waited_for_to_the_end() -> None:
    """Where nothing moves and no node takes what is left, waiting is of no use for long."""
    fake = cluster(so_far(1, 1, blocked=[BIG]))
    fake.nodes["n1"].draining = True
    async with served(fake) as address, Client(ServerSettings(address), 5) as client:
        look = await asyncio.wait_for(wait_for_drain(client, "n1", 3600, patience=0), 10)
    assert (look.end, look.progress.remaining) == (DrainEnd.BLOCKED, 1)


@pytest.mark.asyncio
async def test_a_stuck_drain_that_comes_loose_is_waited_for() -> None:
    """What has no place at one look may have one at the next."""
    fake = cluster(so_far(1, 1, blocked=[BIG]), so_far(1, 1, blocked=[BIG]), so_far(2, 0))
    result = await ask(fake, "node", "drain", "n1", "--wait")
    assert (result.code, result.err) == (ExitCode.DONE, "")


@pytest.mark.asyncio
async def test_a_drain_that_somebody_ends_is_a_failure() -> None:
    """The node was not emptied, and will not be."""
    fake = cluster(so_far(0, 2))
    looks: list[str] = []

    def undrained(node_id: str) -> None:
        looks.append(node_id)
        fake.nodes[node_id].draining = len(looks) < 2

    fake.on_progress = undrained
    result = await ask(fake, "node", "drain", "n1", "--wait")
    assert (result.code, result.err) == (ExitCode.FAILED, "n1 is no longer being drained\n")


@pytest.mark.asyncio
async def test_waiting_outlives_a_scheduler_that_is_away() -> None:
    """A scheduler that cannot answer just now is asked again until the time is over."""
    fake = cluster()
    fake.refusals["GetDrainProgress"] = Refusal(grpc.StatusCode.UNAVAILABLE, "busy")
    looks: list[str] = []

    def recover(node_id: str) -> None:
        looks.append(node_id)
        if len(looks) == 2:
            fake.refusals.clear()

    fake.on_progress = recover
    result = await ask(fake, "node", "drain", "n1", "--wait")
    assert (result.code, looks) == (ExitCode.DONE, ["n1", "n1"])


@pytest.mark.asyncio
async def test_programs_get_one_document() -> None:
    """With -o json the answer and the last progress are one document, whatever the exit code."""
    fake = cluster(so_far(1, 1, blocked=[BIG]))
    argv = ("node", "drain", "n1", "--wait", "--timeout", "200ms", "-o", "json")
    result = await ask(fake, *argv)
    assert result.code == ExitCode.NOT_YET
    value = json.loads(result.out)
    assert (value["accepted"], value["relocatedWorkloads"]) == (True, 1)
    assert value["progress"]["blocked"][0]["workloadId"] == "big"


@pytest.mark.asyncio
async def test_a_person_sees_the_drain_on_standard_error() -> None:
    """On a terminal its progress is visible on standard error; standard output stays clean."""
    fake = cluster(so_far(1, 2), so_far(3, 0))
    async with served(fake) as address:
        argv = ("node", "drain", "n1", "--wait", "--server", address)
        result = await call(*argv, terminal=True)
    assert result.code == ExitCode.DONE
    assert "moved" in result.err
    assert "\x1b" not in result.out


@pytest.mark.asyncio
async def test_undrain() -> None:
    """The reason is passed on."""
    fake = cluster()
    result = await ask(fake, "node", "undrain", "n1", "--reason", "done")
    assert fake.asked == [pb.UndrainNodeRequest(node_id="n1", reason="done")]
    assert (result.code, result.out) == (ExitCode.DONE, "n1 is in service again\n")


@pytest.mark.asyncio
async def test_remove() -> None:
    """Refused in the scheduler's words while work is there; force and reason are passed on."""
    fake = cluster()
    result = await ask(fake, "node", "remove", "n1")
    assert (result.code, result.err) == (ExitCode.FAILED, "error: it has workloads: web\n")
    result = await ask(fake, "node", "remove", "n1", "--force", "--reason", "burnt")
    assert fake.asked[-1] == pb.RemoveNodeRequest(node_id="n1", force=True, reason="burnt")
    assert (result.code, result.out) == (ExitCode.DONE, "n1: removed\n")


@pytest.mark.parametrize(
    "argv",
    [
        ("drain", "x"), ("drain", "x", "--wait"), ("undrain", "x"), ("remove", "x"),
        ("taint", "x", "gpu"),
        ("untaint", "x", "gpu"), ("label", "x", "a=1", "b-"), ("status", "x"),
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_an_unknown_node(argv: tuple[str, ...]) -> None:
    """What is not there ends in 1 with the scheduler's words, said once."""
    result = await ask(cluster(), "node", *argv)
    assert (result.code, result.out) == (ExitCode.FAILED, "")
    assert result.err == "error: node 'x' not found\n"


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("gpu", pb.NodeTaint(key="gpu")),
        ("gpu=a100", pb.NodeTaint(key="gpu", value="a100")),
        ("gpu:noexecute", pb.NodeTaint(key="gpu", effect="NoExecute")),
        ("example.org/gpu=a:PreferNoSchedule",
         pb.NodeTaint(key="example.org/gpu", value="a", effect="PreferNoSchedule")),
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_taint_is_written_like_a_toleration(text: str, taint: pb.NodeTaint) -> None:
    """KEY[=VALUE][:EFFECT]; what is left out is left to the scheduler."""
    fake = cluster()
    result = await ask(fake, "node", "taint", "n1", text)
    assert fake.asked == [pb.TaintNodeRequest(node_id="n1", taint=taint)]
    assert (result.code, result.out) == (ExitCode.DONE, "n1: tainted\n")


@pytest.mark.asyncio
async def test_untaint() -> None:
    """By key, and by effect where one is given."""
    fake = cluster()
    result = await ask(fake, "node", "untaint", "n1", "gpu")
    await ask(fake, "node", "untaint", "n1", "gpu:NoExecute")
    assert fake.asked == [
        pb.UntaintNodeRequest(node_id="n1", key="gpu"),
        pb.UntaintNodeRequest(node_id="n1", key="gpu", effect="NoExecute"),
    ]
    assert (result.code, result.out) == (ExitCode.DONE, "n1: no such taint now\n")


@pytest.mark.asyncio
async def test_labels_are_set_and_taken_away() -> None:
    """KEY=VALUE sets, KEY- takes away, in the order in which they stand."""
    fake = cluster()
    result = await ask(fake, "node", "label", "n1", "rack=r2", "old-", "empty=", "x=a=b-")
    assert fake.asked == [
        pb.SetNodeLabelRequest(node_id="n1", key="rack", value="r2"),
        pb.DeleteNodeLabelRequest(node_id="n1", key="old"),
        pb.SetNodeLabelRequest(node_id="n1", key="empty"),
        pb.SetNodeLabelRequest(node_id="n1", key="x", value="a=b-"),
    ]
    assert result.code == ExitCode.DONE
    assert result.out == "n1: rack set\nn1: old gone\nn1: empty set\nn1: x set\n"


@pytest.mark.asyncio
async def test_one_refused_label_does_not_keep_the_others_back() -> None:
    """It ends in 1 and names the one; a program finds both in one document."""
    fake = cluster()
    fake.refusals["DeleteNodeLabel"] = Refusal(
        grpc.StatusCode.FAILED_PRECONDITION, "its agent sets it"
    )
    result = await ask(fake, "node", "label", "n1", "old-", "rack=r2", "-o", "json")
    assert result.code == ExitCode.FAILED
    assert result.err == "n1: label old not changed: refused: its agent sets it\n"
    items = json.loads(result.out)["items"]
    assert items[0] == {"key": "old", "refused": "refused: its agent sets it"}
    assert items[1]["node"]["labels"] == {"rack": "r2"}


@pytest.mark.asyncio
async def test_status_of_a_draining_node() -> None:
    """What runs there, how far the drain is, when it ends, and why something stays."""
    fake = cluster(so_far(2, 1, 1, blocked=[BIG], deadline_at=at(250), force=True))
    fake.nodes["n1"].MergeFrom(
        pb.NodeView(
            draining=True, intent_reason="new disk", taints=[pb.NodeTaint(key="gpu", value="a")]
        )
    )
    fake.workloads["big"] = workload("big")
    result = await ask(fake, "node", "status", "n1")
    assert result.code == ExitCode.DONE
    for part in (
        "draining (new disk)",
        "gpu=a:NoSchedule",
        "Moved       2 of 3",
        "Remaining   1, 1 cannot leave",
        "Old copies  1 still to be ended here",
        "Deadline    in 4m10s; what is left is stopped",
        "big  container  Running",
        "big       cpu   0/1 nodes: 1 cpu",
    ):
        assert part in result.out
    value = json.loads((await ask(fake, "node", "status", "n1", "-o", "json")).out)
    assert value["drain"]["remaining"] == 1
    assert value["workloads"][0]["workloadId"] == "big"


@pytest.mark.asyncio
async def test_a_deadline_that_has_passed_says_since_when() -> None:
    """*now* would be wrong for the rest of the drain."""
    fake = cluster(so_far(0, 1, deadline_at=at(-12)))
    fake.nodes["n1"].draining = True
    result = await ask(fake, "node", "status", "n1")
    assert "Deadline   passed 12s ago; what is left stays" in result.out


@pytest.mark.asyncio
async def test_status_of_a_node_that_nobody_drains() -> None:
    """It says what a drain would meet."""
    fake = cluster(so_far(0, 3, blocked=[BIG]))
    out = (await ask(fake, "node", "status", "n1")).out
    assert "a drain would have to move 3 workloads, 1 with no other place at present" in out
    assert "no workloads" in out


@pytest.mark.asyncio
async def test_status_works_with_an_older_scheduler() -> None:
    """Without the progress of drains the rest is shown all the same."""
    fake = cluster()
    fake.refusals["GetDrainProgress"] = Refusal(grpc.StatusCode.UNIMPLEMENTED)
    result = await ask(fake, "node", "status", "n1")
    assert result.code == ExitCode.DONE
    assert "Ready" in result.out
    assert "no progress of a drain: " in result.err

"""What has to be true of a demonstration, and which node may die in it."""

from __future__ import annotations

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.verdict import has_moved, has_settled, judge_workload, victim_of
from tests.unit.server.dev.views import node, picture, unschedulable, workload

BOTH = ("container", "vm")


@pytest.mark.parametrize(
    ("view", "settled"),
    [
        (workload("w", "Running", "n1"), True),
        (workload("w", "Completed", "n1"), True),
        (workload("w", "Pending", why="no room"), True),
        (workload("w", "Pending"), False),
        (workload("w", "Pending", "n1", why="no room"), False),
        (workload("w", "Scheduled", "n1"), False),
        (workload("w", "Failed", "n1", why="no image"), False),
    ],
)
def test_settled_is_at_rest_or_waiting_for_a_reason(view: pb.WorkloadView, settled: bool) -> None:
    """A wish that waits without a reason is not settled, nor one that is under way."""
    assert has_settled(picture(view), ["w"]) is settled


def test_what_is_not_seen_has_not_settled() -> None:
    """A workload that was applied and does not show up yet is waited for."""
    assert not has_settled(picture(), ["w"])


def test_the_victim_runs_most_containers() -> None:
    """So that there is something to see; ties go to the first by name."""
    seen = picture(
        node("n1"), node("n2"), node("n3"),
        workload("a", "Running", "n2"), workload("b", "Running", "n3"),
        workload("c", "Running", "n3"),
    )  # fmt: skip
    assert victim_of(seen) == "n3"
    assert victim_of(picture(*seen.nodes, *seen.workloads[:2])) == "n2"


def test_the_victim_can_be_spared() -> None:
    """Work that only this node can run would be stranded, so another node dies."""
    seen = picture(
        node("n1", types=BOTH), node("n2"),
        workload("a", "Running", "n1"), workload("b", "Running", "n1"),
        workload("m", "Running", "n1", kind="vm"), workload("c", "Running", "n2"),
    )  # fmt: skip
    assert victim_of(seen) == "n2"


@pytest.mark.parametrize(
    "views",
    [
        [node("n1"), workload("a", "Running", "n1")],
        [node("n1"), node("n2", "NotReady"), workload("a", "Running", "n1")],
        [node("n1"), node("n2"), workload("a", "Completed", "n1")],
    ],
)
def test_there_may_be_no_victim(views: list[pb.NodeView | pb.WorkloadView]) -> None:
    """Alone, or with nothing that runs, no node is killed."""
    assert victim_of(picture(*views)) == ""


def test_moved_is_at_rest_elsewhere() -> None:
    """The old place and the way there do not count."""
    assert not has_moved(picture(workload("a", "Running", "n1")), ["a"], "n1")
    assert not has_moved(picture(workload("a", "Scheduled", "n2")), ["a"], "n1")
    assert has_moved(picture(workload("a", "Running", "n2")), ["a"], "n1")


@pytest.mark.parametrize(
    ("view", "explanation", "is_well", "text"),
    [
        (workload("w", "Running", "n1"), None, True, "Running on n1"),
        (workload("w", "Pending"), unschedulable(), True, "Pending, explained: 0/2 nodes"),
        (workload("w", "Pending"), None, False, "no reason is given"),
        (workload("w", "Pending"), pb.Explanation(verdict="unschedulable"), False, "Pending"),
        (workload("w", "Failed", "n1", why="no image"), None, False, "no image"),
    ],
)
def test_waiting_is_well_where_it_is_explained(
    view: pb.WorkloadView, explanation: pb.Explanation | None, is_well: bool, text: str
) -> None:
    """A reason without its counts is no explanation."""
    explanations = {"w": explanation} if explanation else {}
    finding = judge_workload(picture(view), "w", explanations)
    assert finding.is_well is is_well
    assert text in finding.text


def test_a_lost_workload_is_named() -> None:
    """What was applied and is not there is the worst of outcomes."""
    assert not judge_workload(picture(), "w", {}).is_well

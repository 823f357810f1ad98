"""What a person sees: lines for logs, a screen for terminals."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from itertools import count
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture
from persys_server.dev.screen import Scene, drawn
from persys_server.dev.tellers import LineTeller, changes
from tests.unit.server.dev.views import node, picture, unschedulable, workload

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER = picture(
    node("node-1", types=("compose", "container", "vm")), node("node-2", "NotReady"),
    workload("big", "Pending", why="0/2 nodes: 1 selector gpu=yes, 1 cpu (asked 64000 millicores)"),
    workload("web", "Running", "node-1"),
)  # fmt: skip


def event(number: int) -> pb.SchedulerEventView:
    """One of many."""
    shown = pb.SchedulerEventView(type="WorkloadRunning", workload_id="web", reason=f"no {number}")
    shown.timestamp.FromDatetime(NOW)
    return shown


def screen(scene: Scene, width: int, height: int) -> list[str]:
    """The lines of a terminal of that size."""
    console = Console(width=width, height=height, file=StringIO(), color_system=None)
    console.print(drawn(scene, NOW, width, height), end="")
    shown = console.file
    assert isinstance(shown, StringIO)
    return shown.getvalue().splitlines()


def scene(**changed: Any) -> Scene:
    """A scene with everything in it."""
    full = Scene(
        title="A node dies",
        step=4,
        said=("node-2 is switched off. " * 4, "The work moves."),
        picture=evolve(CLUSTER, events=tuple(map(event, range(50)))),
        explained="big",
        explanation=unschedulable(),
        hints=("persysctl --server 127.0.0.1:8085 list workloads", "metrics", "log"),
        elapsed=65.0,
    )
    return evolve(full, **changed)


def test_one_line_per_change() -> None:
    """What did not change is not told again; what went away is."""
    assert list(changes(Picture(), CLUSTER)) == [
        "node-1 is Ready",
        "node-2 is NotReady: heartbeat expired",
        "big is Pending: 0/2 nodes: 1 selector gpu=yes, 1 cpu (asked 64000 millicores)",
        "web is Running on node-1",
    ]
    assert list(changes(CLUSTER, CLUSTER)) == []
    assert list(changes(CLUSTER, evolve(CLUSTER, workloads=CLUSTER.workloads[:1]))) == [
        "web is gone"
    ]


def test_lines_carry_the_seconds() -> None:
    """A log shows what took how long, and explanations with their numbers and units (C01)."""
    out, clock = StringIO(), count(100.0, 0.5)
    teller = LineTeller(out, lambda: next(clock))
    teller.step("Work starts")
    teller.explain("big", unschedulable())
    lines = out.getvalue().splitlines()
    assert lines[0] == "   0.5s  == 1. Work starts"
    assert "selector on 1 node (n1): gpu=yes" in lines[2]
    assert "cpu on 1 node: asked 64 cores, most free 15.5 cores" in lines[3]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 10), (200, 60)])
def test_the_screen_is_never_overrun(width: int, height: int) -> None:
    """Whatever the size of the terminal, no line is too long and none is one too many."""
    lines = screen(scene(), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_everything_is_on_the_screen(width: int, height: int) -> None:
    """Both common sizes have room for each part."""
    text = "\n".join(screen(scene(), width, height))
    for words in (
        "4. A node dies", "1:05", "node-2  NotReady", "4/8", "8/16 GB", "WHY big WAITS",
        "asked 64 cores, most free 15.5 cores", "list workloads", "no 49", "The work moves.",
    ):  # fmt: skip
        assert words in text


def test_events_get_what_is_left() -> None:
    """Without an explanation there is room for more of them, and the newest are shown."""
    few = sum("no " in line for line in screen(scene(), 80, 24))
    many = sum("no " in line for line in screen(scene(explanation=None), 80, 24))
    assert 0 < few < many


def test_many_nodes_are_counted() -> None:
    """The interesting ones are shown, the others counted."""
    nodes = [*(node(f"node-{number}") for number in range(40)), node("sick", "NotReady")]
    lines = screen(scene(picture=picture(*nodes)), 80, 24)
    assert any("sick" in line for line in lines)
    assert any("and 36 more" in line for line in lines)


def test_an_empty_cluster_can_be_drawn() -> None:
    """The first frame comes before anything is known."""
    assert "starting" in screen(Scene(), 80, 24)[0]

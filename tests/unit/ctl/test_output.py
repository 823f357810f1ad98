"""What people and programs see: tables, colours, widths and words."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.output import words
from persysctl.output.columns import Columns
from tests.unit.ctl.harness import NOW, FakeScheduler, ask, at, call, served
from tests.unit.ctl.test_commands import WAITING, workload


def cluster() -> FakeScheduler:
    """Two workloads and two nodes."""
    return FakeScheduler(
        workloads={
            "web": workload("web"),
            "big": pb.WorkloadView(
                workload_id="big",
                type="container",
                desired_state="Running",
                status="Pending",
                explanation=WAITING,
                created_at=at(-200),
                requested=[pb.ResourceAmount(name="cpu", amount=64000, unit="millicores")],
                retry_attempts=1,
                retry_max_attempts=5,
            ),
        },
        nodes={
            "n1": pb.NodeView(
                node_id="n1",
                status="Ready",
                total_cpu_cores=4,
                available_cpu_cores=2.5,
                total_memory_mb=16384,
                available_memory_mb=512,
                last_heartbeat=at(-3),
                grpc_endpoint="10.0.0.1:50051",
                supported_workload_types=["container", "vm"],
                labels={"disk": "ssd"},
                taints=[
                    pb.NodeTaint(key="gpu", value="a"),
                    pb.NodeTaint(key="x", effect="NoExecute"),
                ],
            ),
            "n2": pb.NodeView(
                node_id="n2", status="NotReady", status_reason="lease ended", draining=True
            ),
        },
    )


@pytest.mark.asyncio
async def test_the_table_of_workloads() -> None:
    """Columns line up, a reason stands last, and there are no blanks at the ends of lines."""
    result = await ask(cluster(), "list", "workloads")
    assert result.out == (
        "ID   TYPE       STATUS   DESIRED  NODE  AGE    REASON\n"
        "web  container  Running  Running  n1    1m\n"
        "big  container  Pending  Running  -     3m20s  0/3 nodes: 3 cpu (asked 64000)\n"
    )


@pytest.mark.asyncio
async def test_the_table_of_nodes() -> None:
    """What is free of what there is, and what an operator should know."""
    result = await ask(cluster(), "list", "nodes")
    assert result.out == (
        "ID  STATUS    CPU FREE  MEMORY FREE      HEARTBEAT  REMARKS\n"
        "n1  Ready     2.5 of 4  512 MB of 16 GB  3s         taint gpu=a:NoSchedule, taint"
        " x:NoExecute\n"
        "n2  NotReady  0 of 0    0 MB of 0 MB     -          draining\n"
    )


@pytest.mark.asyncio
async def test_wide_tables_show_more() -> None:
    """-o wide adds columns and leaves the others where they are."""
    workloads = (await ask(cluster(), "list", "workloads", "-o", "wide")).out
    nodes = (await ask(cluster(), "list", "nodes", "-o", "wide")).out
    assert workloads.splitlines()[0].split()[-5:] == [
        "REQUESTED",
        "RETRIES",
        "UPDATED",
        "REVISION",
        "REASON",
    ]
    assert "cpu 64 cores" in workloads
    assert "1/5" in workloads
    assert "10.0.0.1:50051" in nodes
    assert "container, vm" in nodes
    assert "disk=ssd" in nodes


@pytest.mark.asyncio
async def test_empty_lists_say_so() -> None:
    """An empty table is a sentence."""
    for what in ("workloads", "nodes"):
        assert (await ask(FakeScheduler(), "list", what)).out == f"no {what}\n"
    assert (await ask(FakeScheduler(), "events")).out == "no events\n"


async def on_terminal(environ: Mapping[str, str]) -> str:
    """The table of workloads on a terminal."""
    async with served(cluster()) as address:
        variables = {"PERSYS_SERVER": address, "TERM": "xterm", **environ}
        return (await call("list", "workloads", environ=variables, terminal=True)).out


@pytest.mark.asyncio
async def test_colour_only_where_it_is_wanted() -> None:
    """Colour on a terminal; none with NO_COLOR, on a dumb terminal, or in a pipe."""
    assert "\x1b[32mRunning" in await on_terminal({})
    assert "\x1b" not in await on_terminal({"NO_COLOR": "1"})
    assert "\x1b" not in await on_terminal({"TERM": "dumb"})
    assert "\x1b" not in (await ask(cluster(), "list", "workloads")).out


@pytest.mark.asyncio
async def test_a_table_is_as_wide_as_the_terminal() -> None:
    """On a narrow terminal the reason is wrapped and no line is too long."""
    lines = (await on_terminal({"COLUMNS": "60", "NO_COLOR": "1"})).splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) > 3
    assert "big" in lines[2]


@pytest.mark.asyncio
async def test_explain_shows_reasons_with_their_numbers() -> None:
    """C01: per reason the count, asked and free with their unit, example nodes, what is next."""
    explanation = pb.Explanation(
        verdict="unschedulable",
        summary="0/5 nodes: 3 memory, 2 selector disk=ssd",
        since=at(-90),
        nodes_considered=5,
        reasons=[
            pb.ReasonCount(
                code="memory",
                nodes=3,
                unit="MB",
                asked=4096,
                free_max=512,
                examples=[pb.NodeRejection(node_id="n1"), pb.NodeRejection(node_id="n2")],
            ),
            pb.ReasonCount(code="selector", nodes=2, message="disk=ssd"),
        ],
        next_step="free 3584 MB on a node",
        next_try_at=at(30),
    )
    result = await ask(FakeScheduler(explanations={"big": explanation}), "explain", "big")
    assert result.out == (
        "Verdict  unschedulable (for 1m30s)\n"
        "Summary  0/5 nodes: 3 memory, 2 selector disk=ssd\n"
        "Nodes    0 of 5 can take it\n"
        "\n"
        "REASON    NODES  ASKED  MOST FREE  EXAMPLES        DETAIL\n"
        "memory    3      4 GB   512 MB     n1, n2, 1 more\n"
        "selector  2      -      -          -               disk=ssd\n"
        "\n"
        "Next  free 3584 MB on a node; the scheduler looks again in 30s\n"
    )


@pytest.mark.asyncio
async def test_explain_shows_scores() -> None:
    """Where it was placed: the node, its score and what that is the sum of, and the others."""
    explanation = pb.Explanation(
        verdict="placed",
        summary="placed on n1",
        node_id="n1",
        score=0.9,
        score_parts={"memory": 0.3, "cpu": 0.4, "spread": 0.2},
        candidates=[pb.Candidate(node_id="n2", score=0.5, parts={"cpu": 0.5})],
    )
    out = (await ask(FakeScheduler(explanations={"web": explanation}), "explain", "web")).out
    assert "Node     n1, score 0.9 = cpu 0.4 + memory 0.3 + spread 0.2\n" in out
    assert "n2         0.5    cpu 0.5\n" in out


@pytest.mark.asyncio
async def test_explain_takes_the_kind_before_the_id() -> None:
    """`explain web`, `explain workload web` and `explain workload/web` are the same question."""
    fake = FakeScheduler(explanations={"web": pb.Explanation(verdict="placed")})
    for target in (["web"], ["workload", "web"], ["workload/web"]):
        await ask(fake, "explain", *target, "--examples", "7")
    assert fake.asked == [pb.ExplainWorkloadRequest(workload_id="web", max_examples=7)] * 3


@pytest.mark.asyncio
async def test_names_of_others_do_not_steer_the_terminal() -> None:
    """Control characters in ids, labels and reasons are replaced in tables."""
    view = workload("we\x1b[31mb", status="Pending", failure_reason="x\x9b2J\ny")
    result = await ask(FakeScheduler(workloads={"x": view}), "list", "workloads")
    assert "\x1b" not in result.out
    assert "\x9b" not in result.out


def test_wide_letters_are_counted_as_they_are_shown() -> None:
    """A cell that is cut keeps to its width also where a letter takes two places."""
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(Columns(["NAME", "WHY"], [[Text("節" * 60), Text("because of it")]]))
    lines = console.export_text().splitlines()
    assert max(map(cell_len, lines)) <= 40
    assert "…" in lines[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (200, "3m20s"), (3600, "1h"), (5400, "1h30m"),
     (36000, "10h"), (90000, "1d1h"), (864000, "10d"), (-5, "0s")],
)  # fmt: skip
def test_ages(seconds: int, text: str) -> None:
    """An age has one unit, and a second one where the first is small; never a minus."""
    assert words.age(pb.WorkloadView(created_at=at(-seconds)), "created_at", NOW) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(500, "millicores", "500m"), (1500, "millicores", "1.5 cores"), (512, "MB", "512 MB"),
     (1536, "MB", "1.5 GB"), (-2048, "MB", "-2 GB"), (10, "GB", "10 GB"), (3, "units", "3 units"),
     (3, "", "3"), (100_000_000, "millicores", "100000 cores"),
     (12_345, "millicores", "12.345 cores"),
     (12_345_678_000, "millicores", "12345678 cores"), (10_000_000, "MB", "9765.6 GB"),
     (2_000_000, "units", "2000000 units"), (0, "GB", "0 GB")],
)  # fmt: skip
def test_amounts(value: int, unit: str, text: str) -> None:
    """An amount always names its unit."""
    assert words.amount(value, unit) == text


LONG = "shop-" + "a" * 200 + "-frontend-2"


def crowded() -> FakeScheduler:
    """A workload with a long id and a reason of several lines."""
    why = "first line\n   second\tline\n" + "x " * 40
    view = workload(LONG, status="Failed", failure_reason=why)
    return FakeScheduler(workloads={LONG: view, "web": workload("web")})


async def shown(fake: FakeScheduler, *argv: str, **environ: str) -> str:
    """What a terminal of 80 columns shows."""
    async with served(fake) as address:
        variables = {"PERSYS_SERVER": address, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80"}
        return (await call(*argv, environ=variables | environ, terminal=True)).out


@pytest.mark.parametrize("columns", [60, 80, 132, 400])
@pytest.mark.asyncio
async def test_long_ids_leave_room_on_a_terminal(columns: int) -> None:
    """An id too long is cut in its middle, so that the reason beside it can be read."""
    lines = (await shown(crowded(), "list", "workloads", COLUMNS=str(columns))).splitlines()
    assert max(map(len, lines)) <= columns
    assert len(lines) < 14
    named = lines[1].split()[0]
    assert named == LONG if columns == 400 else ("…" in named and named.endswith("-2"))
    assert named.startswith("shop-")


@pytest.mark.parametrize("argv", [("list", "workloads"), ("list", "workloads", "-o", "wide")])
@pytest.mark.asyncio
async def test_nothing_is_cut_in_a_pipe(argv: tuple[str, ...]) -> None:
    """What is piped, and what -o wide shows, is whole: a line for each workload."""
    out = (await ask(crowded(), *argv)).out
    assert len(out.splitlines()) == 3
    assert f"{LONG} " in out
    assert "first line second line x x" in out


@pytest.mark.asyncio
async def test_wide_is_whole_on_a_terminal() -> None:
    """-o wide cuts nothing there either; the terminal itself breaks the lines."""
    out = await shown(crowded(), "list", "workloads", "-o", "wide")
    assert len(out.splitlines()) == 3
    assert LONG in out


@pytest.mark.asyncio
async def test_what_runs_and_is_not_well_is_marked() -> None:
    """A crash loop shows in lists with a mark and its reason, and in full where one is shown."""
    said = "restarted 7 times in 10 min, last exit 1: no such table"
    reason = pb.ReasonDetail(code="restarting", message=said, last_transition=at(-9))
    fake = FakeScheduler(workloads={"web": workload("web", reason=reason)})
    listed = (await ask(fake, "list", "workloads")).out
    assert listed.splitlines()[1].split("  ")[2].strip() == "Running (restarting)"
    assert listed.rstrip().endswith(said)
    described = (await ask(fake, "describe", "workload", "web")).out
    assert f"Running ({said})" in described
    assert "Reason" not in described.partition("Events")[0]


@pytest.mark.asyncio
async def test_another_reason_of_what_runs_is_no_mark() -> None:
    """A node that fell silent says nothing of the workload's own health."""
    reason = pb.ReasonDetail(code="node_not_ready", message="node n1: silent")
    fake = FakeScheduler(workloads={"web": workload("web", reason=reason)})
    assert "Running  Running" in (await ask(fake, "list", "workloads")).out

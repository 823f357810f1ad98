"""`persysctl top`: measured use in tables, in order, once or again and again."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.exit_codes import ExitCode
from persysctl.session import Surroundings, run
from tests.unit.ctl.harness import NOW, FakeScheduler, FakeTerminal, Refusal, ask, at, served

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from persys_proto.control.v1.control_pb2_grpc import _ServicerContext as Context

MIB = 1024 * 1024


def workload(name: str, cpu: float = 0, memory: int = 0, node: str = "n1") -> pb.WorkloadView:
    """One that was measured two seconds ago."""
    usage = pb.WorkloadUsageSnapshot(
        cpu_percent=cpu,
        memory_bytes=memory,
        net_rx_bytes=1536,
        net_tx_bytes=20 * MIB,
        disk_read_bytes=300 * 1024 * MIB,
        disk_write_bytes=7,
        collected_at=at(-2),
    )
    return pb.WorkloadView(workload_id=name, status="Running", assigned_node_id=node, usage=usage)


def cluster() -> FakeScheduler:
    """Three workloads on nodes, one of which nobody measured, and one that waits."""
    views = [
        workload("small", 1.25, 300 * MIB),
        workload("big", 150, 64 * MIB, "n2"),
        pb.WorkloadView(workload_id="dark", status="Scheduled", assigned_node_id="n1"),
        pb.WorkloadView(workload_id="waits", status="Pending"),
    ]
    views[0].requested.append(pb.ResourceAmount(name="memory", amount=2048, unit="MB"))
    nodes = [
        pb.NodeView(
            node_id="n1",
            status="Ready",
            total_cpu_cores=8,
            total_memory_mb=16384,
            capacity=[pb.ResourceAmount(name="disk", amount=200, unit="GB")],
            usage=pb.NodeUsage(cpu_used_millicores=2000, memory_used_mb=512, disk_used_gb=20),
            usage_reported_at=at(-3),
        ),
        pb.NodeView(
            node_id="n2",
            status="Ready",
            usage=pb.NodeUsage(cpu_used_millicores=500, memory_used_mb=1024),
            usage_reported_at=at(-3),
        ),
        pb.NodeView(node_id="n0", status="NotReady"),
    ]
    return FakeScheduler(
        workloads={view.workload_id: view for view in views},
        nodes={view.node_id: view for view in nodes},
    )


def names(out: str) -> list[str]:
    """The first column."""
    return [each.split()[0] for each in out.splitlines()[1:]]


@pytest.mark.asyncio
async def test_workloads_by_cpu() -> None:
    """Those on nodes, the most first; a dash where nothing is known, and how old the rest is."""
    result = await ask(cluster(), "top")
    rows = [line.split("  ") for line in result.out.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["ID", "NODE", "STATUS", "CPU", "MEMORY", "NET IN/OUT", "DISK READ/WRITE", "AGE"],
        ["big", "n2", "Running", "150.0%", "64.0 MB", "1.5 KB / 20.0 MB", "300 GB / 7 B", "2s"],
        [
            "small", "n1", "Running", "1.2%", "300 MB of 2.0 GB", "1.5 KB / 20.0 MB",
            "300 GB / 7 B", "2s",
        ],
        ["dark", "n1", "Scheduled", "-", "-", "-", "-", "-"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("top workloads", ["big", "small", "dark"]),
        ("top wl --sort memory", ["small", "big", "dark"]),
        ("top --sort name", ["big", "dark", "small"]),
        ("top --node n1", ["small", "dark"]),
        ("top nodes", ["n1", "n2", "n0"]),
        ("top node --sort memory", ["n2", "n1", "n0"]),
        ("top nodes --sort name", ["n0", "n1", "n2"]),
        ("top nodes --node n2", ["n2"]),
    ],
)
@pytest.mark.asyncio
async def test_order_and_choice(line: str, order: list[str]) -> None:
    """The most first, the unmeasured last, names from the first; --node leaves one node's."""
    table = await ask(cluster(), *line.split())
    document = await ask(cluster(), *line.split(), "-o", "json")
    items = json.loads(document.out)["items"]
    assert names(table.out) == order
    assert [each.get("workloadId") or each["nodeId"] for each in items] == order


@pytest.mark.asyncio
async def test_nodes() -> None:
    """Percent of all cores, and what is used of what there is, as far as that is known."""
    result = await ask(cluster(), "top", "nodes")
    assert [" ".join(line.split()) for line in result.out.splitlines()] == [
        "ID STATUS CPU CORES USED MEMORY USED DISK USED AGE",
        "n1 Ready 25.0% 2.00 of 8 512 MB of 16.0 GB 20 GB of 200 GB 3s",
        "n2 Ready - 0.50 of 0 1.0 GB of 0 B 0 GB 3s",
        "n0 NotReady - - - - -",
    ]


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("top volumes", ExitCode.USAGE_OR_CONNECTION, "'volumes' is no kind"),
        ("top workload/web", ExitCode.USAGE_OR_CONNECTION, "--node ID leaves only"),
        ("top --sort disk", ExitCode.USAGE_OR_CONNECTION, "is not one of cpu, memory, name"),
        ("top --interval 0s", ExitCode.USAGE_OR_CONNECTION, "more than nothing"),
        ("top nodes --node nx", ExitCode.FAILED, "there is no node nx"),
    ],
)
@pytest.mark.asyncio
async def test_wrong_calls(line: str, code: ExitCode, part: str) -> None:
    """What top cannot show is said."""
    result = await ask(cluster(), *line.split())
    assert (result.code, part in result.err) == (code, True)


@pytest.mark.parametrize("line", ["top", "top nodes"])
@pytest.mark.asyncio
async def test_nothing_there(line: str) -> None:
    """An empty cluster is a line, not an empty table."""
    assert (await ask(FakeScheduler(), *line.split())).out.startswith("no ")


# -------------------------------------------------------------------------- watch


async def watched(fake: FakeScheduler, *argv: str, looks: int, terminal: bool = False) -> Seen:
    """Watch until the scheduler was asked so often."""
    stream = FakeTerminal if terminal else io.StringIO
    out, err, enough = stream(), stream(), asyncio.Event()
    environ = {"COLUMNS": "120", "LINES": "40"}
    here = Surroundings(stream(), out, err, environ, Path("/nonexistent"), lambda: NOW)

    async def count() -> None:
        while len(fake.asked) <= looks:  # noqa: ASYNC110 - tells nobody
            await asyncio.sleep(0.005)
        enough.set()

    async with served(fake) as address:
        words = ["top", "--watch", "--interval", "10ms", "--server", address, *argv]
        running, counting = asyncio.create_task(run(words, here)), asyncio.create_task(count())
        await asyncio.wait_for(enough.wait(), 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await counting
    return out.getvalue(), err.getvalue()


Seen = tuple[str, str]


@pytest.mark.asyncio
async def test_a_watch_redraws_on_a_terminal() -> None:
    """On a terminal the table stands in one place, and the cursor is given back."""
    out, _ = await watched(cluster(), looks=3, terminal=True)
    assert out.count("big") >= 3
    assert "\x1b[1A\x1b[2K" in out
    assert out.rstrip().endswith("\x1b[?25h")


@pytest.mark.asyncio
async def test_a_watch_into_a_pipe() -> None:
    """Elsewhere tables follow each other; programs get a document per line."""
    out, _ = await watched(cluster(), looks=3)
    documents, _ = await watched(cluster(), "-o", "json", looks=3)
    assert out.count("NET IN/OUT") >= 3
    assert "\x1b" not in out
    lines = documents.splitlines()
    assert len(lines) >= 3
    assert all(json.loads(each)["items"] for each in lines)


class Leaving(FakeScheduler):
    """Goes away after its second answer."""

    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        if len(self.asked) == 2:
            self.refusals["ListNodes"] = Refusal(grpc.StatusCode.UNAVAILABLE, "elsewhere")
        return await super().ListNodes(request, context)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.asyncio
async def test_a_watch_outlasts_the_scheduler(terminal: bool) -> None:
    """Once it began it goes on while the scheduler is away, and says so."""
    fake = Leaving(nodes=cluster().nodes)
    seen = await watched(fake, "nodes", looks=5, terminal=terminal)
    assert "the scheduler cannot do this now: elsewhere" in "".join(seen)


@pytest.mark.asyncio
async def test_a_watch_that_cannot_begin() -> None:
    """A scheduler that says no, or was never reached, ends it at once."""
    refused = FakeScheduler(refusals={"ListNodes": Refusal(grpc.StatusCode.PERMISSION_DENIED)})
    assert (await ask(refused, "top", "nodes", "--watch")).code == ExitCode.FAILED

"""The story with a cluster that does what a test says: what is found, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO

import grpc
import grpc.aio
import pytest
from attrs import define, evolve, field

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture
from persys_server.dev.story import Pace, Story
from persys_server.dev.tellers import LineTeller
from persys_server.dev.verdict import Finding
from tests.unit.server.dev.views import node, picture, unschedulable, workload

AT_ONCE = Pace(joining=0, settling=0, moving=0, calm=0)


@define
class FakeEye:
    """A cluster whose picture changes only where a test changes it."""

    picture: Picture
    refuses: str = ""
    log: list[str] = field(factory=list)

    async def until(self, holds: Callable[[Picture], bool], seconds: float) -> bool:
        return holds(self.picture)

    async def apply(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
        self.log.append(f"apply {request.workload_id}")
        if request.workload_id == self.refuses:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.INVALID_ARGUMENT, nothing, nothing, "spec is required"
            )
        return pb.ApplyWorkloadResponse(success=True)

    async def explain(self, workload_id: str) -> pb.Explanation:
        self.log.append(f"explain {workload_id}")
        return unschedulable()

    async def kill(self, node_id: str) -> None:
        """Off it goes; its work runs elsewhere at once."""
        self.log.append(f"kill {node_id}")
        moved = [
            workload(each.workload_id, "Running", "n2")
            if each.assigned_node_id == node_id
            else each
            for each in self.picture.workloads
        ]
        self.picture = evolve(self.picture, workloads=tuple(moved))


async def told(
    eye: FakeEye, *names: str, nodes: int = 2, moves: bool = True
) -> tuple[Sequence[Finding], str]:
    """The findings of a story about these workloads, and its text."""
    out = StringIO()

    async def only_log(node_id: str) -> None:
        eye.log.append(f"kill {node_id}")

    story = Story(
        eye,
        LineTeller(out),
        [pb.ApplyWorkloadRequest(workload_id=name) for name in names],
        nodes=nodes,
        kill=eye.kill if moves else only_log,
        pace=AT_ONCE,
    )
    return await story.run(), out.getvalue()


def cluster() -> FakeEye:
    """Two nodes, one workload that runs and one that waits."""
    waits = workload("big", "Pending", why="no node has 64 cores")
    return FakeEye(picture(node("n1"), node("n2"), waits, workload("web", "Running", "n1")))


@pytest.mark.asyncio
async def test_all_goes_well() -> None:
    """Nodes, work, a death, a move, an explanation: everything is found well, in this order."""
    eye = cluster()
    findings, text = await told(eye, "big", "web")
    assert eye.log == ["apply big", "apply web", "kill n1", "explain big"]
    assert [finding.subject for finding in findings] == ["nodes", "n1 killed", "big", "web"]
    assert all(finding.is_well for finding in findings)
    assert "n1 is switched off. It runs web." in text
    assert "Moved: web to n2." in text
    assert text.index("Nodes join") < text.index("A node dies") < text.index("is explained")


@pytest.mark.asyncio
async def test_what_does_not_move_is_found() -> None:
    """Work that stays on a dead node is not well."""
    findings, text = await told(cluster(), "web", moves=False)
    assert {each.subject for each in findings if not each.is_well} == {"n1 killed"}
    assert "Not moved in time: web to n1" in text


@pytest.mark.asyncio
async def test_missing_nodes_are_found() -> None:
    """Fewer nodes than were switched on are not well, and the story goes on."""
    findings, _ = await told(cluster(), "web", nodes=3)
    assert {each.subject for each in findings if not each.is_well} == {"nodes"}


@pytest.mark.asyncio
async def test_a_refused_workload_is_found_with_its_reason() -> None:
    """What the scheduler does not take is no surprise at the end."""
    eye = cluster()
    eye.refuses = "odd"
    findings, text = await told(eye, "odd", "web")
    assert [each.text for each in findings if not each.is_well] == ["was refused: spec is required"]
    assert "odd was refused" in text


@pytest.mark.asyncio
async def test_alone_no_node_dies() -> None:
    """One node has nowhere to move its work to, so it lives."""
    eye = FakeEye(picture(node("n1"), workload("web", "Running", "n1")))
    findings, text = await told(eye, "web", nodes=1)
    assert all(each.is_well for each in findings)
    assert eye.log == ["apply web"]
    assert "Try more nodes" in text

"""The ways out of recovery over the wire: what is asked, what is said, and what is refused."""

from __future__ import annotations

import grpc
import pytest

from persys_core.control.answers import ImportAnswer
from persys_core.control.requests import AcknowledgeEmpty, ImportFromAgents
from persys_core.model.errors import RefusedError
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.states import OperatingMode, WorkloadType
from persys_core.recovery.plan import Decision, ImportItem, Recorded
from persys_proto.control.v1 import control_pb2 as pb
from tests.unit.server.fakes import FakeScheduler, loopback


def item(workload_id: str, decision: Decision) -> ImportItem:
    """A container on n1."""
    report = AgentReport(workload_id, AgentState.RUNNING, "r1", WorkloadType.CONTAINER)
    return ImportItem("n1", report, Recorded(), decision, "because")


ITEMS = (item("a", Decision.IMPORT), item("b", Decision.CONFLICT))
PARTIAL = ImportAnswer(ITEMS, ("n1",), {"n2": "no answer"}, False, OperatingMode.RECOVERY)


@pytest.mark.asyncio
async def test_an_import_is_asked_for_and_told() -> None:
    """Every workload with its decision, and the nodes that must not be taken for empty."""
    async with loopback(FakeScheduler(import_shown=PARTIAL)) as at:
        request = pb.ImportFromAgentsRequest(node_ids=["n1", "n2"], reason="new disk")
        answer = await at.stub.ImportFromAgents(request)
        assert at.scheduler.asked == [ImportFromAgents(("n1", "n2"), reason="new disk")]
    assert answer.accepted
    assert (answer.nodes_listed, list(answer.unreachable_node_ids)) == (1, ["n2"])
    assert answer.workloads[0] == pb.ImportedWorkload(
        workload_id="a", node_id="n1", type="container", revision_id="r1", decision="import",
        detail="because",
    )  # fmt: skip
    assert [each.decision for each in answer.workloads] == ["import", "conflict"]
    assert answer.mode == "recovery"
    for part in ("1 workload of 1 node imported", "1 in conflict", "n2 (no answer)", "goes on"):
        assert part in answer.message


@pytest.mark.asyncio
async def test_a_dry_run_is_told_as_one() -> None:
    """Nothing sounds as if it had been done."""
    async with loopback(FakeScheduler(import_shown=PARTIAL)) as at:
        answer = await at.stub.ImportFromAgents(pb.ImportFromAgentsRequest(dry_run=True))
    assert answer.dry_run
    assert "would be imported" in answer.message
    assert "goes on" not in answer.message


@pytest.mark.asyncio
async def test_an_acknowledgement_needs_a_reason() -> None:
    """It is kept in the audit event; without one nothing is asked of the scheduler."""
    async with loopback() as at:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at.stub.AcknowledgeEmpty(pb.AcknowledgeEmptyRequest(reason=" "))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "reason is required" in str(caught.value.details())
        assert at.scheduler.asked == []
        answer = await at.stub.AcknowledgeEmpty(pb.AcknowledgeEmptyRequest(reason="a new start"))
        assert at.scheduler.asked == [AcknowledgeEmpty("a new start")]
    assert (answer.accepted, answer.mode) == (True, "normal")


@pytest.mark.asyncio
async def test_wrong_nodes_and_wrong_moments_are_refused() -> None:
    """Each field is named, and a refusal is FAILED_PRECONDITION."""
    async with loopback() as at:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at.stub.ImportFromAgents(pb.ImportFromAgentsRequest(node_ids=["n1", ""]))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "node_ids[1]" in str(caught.value.details())
        at.scheduler.error = RefusedError("nothing to acknowledge")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at.stub.AcknowledgeEmpty(pb.AcknowledgeEmptyRequest(reason="r"))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION

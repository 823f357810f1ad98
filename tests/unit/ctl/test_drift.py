"""`persysctl drift list`: what is shown, and how little of a long revision."""

from __future__ import annotations

import json

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from tests.unit.ctl.harness import FakeScheduler, ask

DRIFTS = [
    pb.DriftView(
        node_id="n1",
        workload_id="ghost",
        type="orphan_on_agent",
        agent_status="Running",
        action="operator_investigation",
        note="remove it",
    ),
    pb.DriftView(
        node_id="n1",
        workload_id="w",
        type="revision_mismatch",
        scheduler_status="a" * 24,
        agent_status="b" * 24,
        action="reapply_scheduler_revision",
    ),
]


@pytest.mark.asyncio
async def test_drifts_are_listed() -> None:
    """One line each, with what is done about it; the node narrows the question."""
    fake = FakeScheduler(drifts=DRIFTS, nodes={"n1": pb.NodeView(node_id="n1")})
    result = await ask(fake, "drift", "list", "--node", "n1")
    header, orphan, revision = result.out.splitlines()
    assert header.split() == [
        "NODE", "WORKLOAD", "TYPE", "RECORDED", "AGENT", "AGE", "ACTION", "NOTE",
    ]  # fmt: skip
    assert orphan.split()[:5] == ["n1", "ghost", "orphan_on_agent", "-", "Running"]
    assert orphan.endswith("remove it")
    assert "a" * 24 not in revision
    assert fake.asked == [pb.ListDriftsRequest(node_id="n1")]


@pytest.mark.asyncio
async def test_a_node_that_is_not_there_is_an_error() -> None:
    """*no drift* would say that all is well on it."""
    fake = FakeScheduler(nodes={"n1": pb.NodeView(node_id="n1")})
    result = await ask(fake, "drift", "list", "--node", "nope")
    assert (result.code, result.out, result.err) == (1, "", "error: node 'nope' not found\n")


@pytest.mark.asyncio
async def test_no_drift_is_said() -> None:
    """An empty list is a sentence for people and a list for programs."""
    assert (await ask(FakeScheduler(), "drift", "list")).out == "no drift\n"
    shown = json.loads((await ask(FakeScheduler(drifts=DRIFTS), "drift", "list", "-o", "json")).out)
    assert "ghost" in json.dumps(shown)

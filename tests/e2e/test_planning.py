"""Looking before applying, and suggestions of automation, against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from tests.e2e.processes import agents, client, ctl, quick_node, server, watching

pytestmark = pytest.mark.slow

WEB = (
    "apiVersion: persys.io/v1\nkind: Workload\nmetadata: {name: web}\n"
    "spec: {type: container, image: IMAGE, env: {API_TOKEN: IMAGE-secret},"
    " resources: {cpu: 100m, memory: 64Mi}}\n"
)


@pytest.mark.simulated("between equal nodes their use decides, and that of a real host changes")
@pytest.mark.asyncio
async def test_plan_diff_and_apply_exactly(tmp_path: Path) -> None:
    """A plan places without storing; the apply takes its node; an apply over an old plan is
    refused; diff names what changes and no secret."""
    file = tmp_path / "web.yaml"
    file.write_text(WEB.replace("IMAGE", "one"))
    async with (
        server(tmp_path) as running,
        agents(running.address, quick_node("n1"), quick_node("n2")),
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        assert await eye.until(
            lambda seen: [each.status for each in seen.nodes] == ["Ready"] * 2, 20
        )
        planned = await ctl(running.address, "plan", "-f", str(file))
        assert planned.code == 0, planned.err
        assert await ctl(running.address, "plan", "-f", str(file)) == planned
        assert not (await stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=5)).workloads
        node = planned.out.split(" on ")[1].split(",")[0]

        apply = ("apply", "-f", str(file), "--plan-revision", "0")
        applied = await ctl(running.address, *apply, "--wait")
        assert (applied.code, f"placed on {node}" in applied.out) == (0, True), applied.err
        assert (await ctl(running.address, "diff", "-f", str(file))).code == 0

        file.write_text(WEB.replace("IMAGE", "two"))
        diff = await ctl(running.address, "diff", "-f", str(file))
        assert diff.code == 1
        assert "spec.container.image: one -> two" in diff.out
        assert "API_TOKEN" in diff.out
        assert "secret" not in diff.out
        refused = await ctl(running.address, *apply)
        assert refused.code == 1
        assert ': stale plan: workload "web" was not stored when' in refused.err
        assert "INVALID_SPEC" not in refused.err


@pytest.mark.asyncio
async def test_a_suggestion_stops_a_workload_once(tmp_path: Path) -> None:
    """The suggestion is carried out and told as an event; its repetition is answered alike."""
    file = tmp_path / "web.yaml"
    file.write_text(WEB.replace("IMAGE", "one"))
    stop = pb.AutomationSuggestion(
        suggestion_id="s1", policy_name="night", target_workload="web",
        action_type=pb.AUTOMATION_ACTION_SET_DESIRED_STATE, desired_state="Stopped",
    )  # fmt: skip
    async with (
        server(tmp_path) as running,
        agents(running.address, quick_node("n1")),
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        applied = await ctl(running.address, "apply", "-f", str(file), "--wait")
        assert applied.code == 0, applied.err
        request = pb.SubmitAutomationSuggestionRequest(suggestion=stop)
        first = await stub.SubmitAutomationSuggestion(request, timeout=5)
        assert (first.accepted, first.applied_action) == (True, "set_desired_state")
        assert await stub.SubmitAutomationSuggestion(request, timeout=5) == first
        assert await eye.until(lambda seen: seen.workloads[0].status == "Stopped", 20)
        told = await stub.ListEvents(pb.ListEventsRequest(type="AutomationApplied"), timeout=5)
        assert [event.details["policy_name"] for event in told.events] == ["night"]

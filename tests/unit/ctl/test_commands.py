"""What the verbs send, print and end with."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
import yaml
from google.protobuf.message import Message

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.exit_codes import ExitCode
from tests.unit.ctl.harness import FakeScheduler, Refusal, ask, at

pytestmark = pytest.mark.slow

MANIFEST = (
    "apiVersion: persys.io/v1\nkind: Workload\nmetadata: {name: web}\n"
    "spec: {type: container, image: nginx}\n"
)
BIG = MANIFEST.replace("web", "big")
WAITING = pb.Explanation(verdict="unschedulable", summary="0/3 nodes: 3 cpu (asked 64000)")


def workload(name: str, **fields: object) -> pb.WorkloadView:
    """A workload that runs on n1 for a minute."""
    view = pb.WorkloadView(
        workload_id=name,
        type="container",
        desired_state="Running",
        status="Running",
        assigned_node_id="n1",
        revision_id="r1",
        created_at=at(-60),
    )
    view.MergeFrom(pb.WorkloadView(**fields))  # type: ignore[arg-type]
    return view


def kinds(asked: list[Message]) -> list[str]:
    """The names of the calls."""
    return [type(request).__name__.removesuffix("Request") for request in asked]


@pytest.mark.asyncio
async def test_apply_says_where_it_was_placed() -> None:
    """A placed workload: what happened, its revision, its node."""
    answer = pb.ApplyWorkloadResponse(
        success=True,
        outcome="Created",
        revision_id="0123456789abcdef01234567",
        explanation=pb.Explanation(verdict="placed", node_id="n1"),
    )
    fake = FakeScheduler(apply_answers={"web": answer})
    result = await ask(fake, "apply", "-f", "-", stdin=MANIFEST)
    assert result.out == "web created (revision 0123456789ab, placed on n1)\n"
    assert (result.code, result.err, kinds(fake.asked)) == (ExitCode.DONE, "", ["ApplyWorkload"])


@pytest.mark.asyncio
async def test_apply_says_why_it_waits() -> None:
    """C01: stored and not placed is a success that names its reason."""
    answer = pb.ApplyWorkloadResponse(success=True, outcome="Created", explanation=WAITING)
    result = await ask(FakeScheduler(apply_answers={"big": answer}), "apply", "-f", "-", stdin=BIG)
    assert result.out == "big created, Pending: 0/3 nodes: 3 cpu (asked 64000)\n"
    assert result.code == ExitCode.DONE


@pytest.mark.asyncio
async def test_apply_of_an_older_scheduler() -> None:
    """Without outcome and revision it is simply applied."""
    fake = FakeScheduler(apply_answers={"web": pb.ApplyWorkloadResponse(success=True)})
    assert (await ask(fake, "apply", "-f", "-", stdin=MANIFEST)).out == "web applied\n"


@pytest.mark.asyncio
async def test_one_refusal_does_not_keep_the_others_back() -> None:
    """A refused workload ends in 1; the rest is applied all the same."""
    refused = pb.ApplyWorkloadResponse(
        failure_reason=pb.INVALID_SPEC, error_message="image is not allowed"
    )
    fake = FakeScheduler(apply_answers={"big": refused})
    result = await ask(fake, "apply", "-f", "-", stdin=BIG + "---\n" + MANIFEST)
    assert result.code == ExitCode.FAILED
    assert result.out == "web created (revision r1)\n"
    assert result.err == "big refused (stdin:1): INVALID_SPEC: image is not allowed\n"


@pytest.mark.asyncio
async def test_nothing_is_sent_if_any_document_is_bad() -> None:
    """One bad document keeps all others back."""
    fake = FakeScheduler()
    result = await ask(fake, "apply", "-f", "-", stdin=MANIFEST + "---\n" + "kind: Workload\n")
    assert (result.code, fake.asked) == (ExitCode.USAGE_OR_CONNECTION, [])
    assert "nothing was sent" in result.err


@pytest.mark.asyncio
async def test_apply_as_json() -> None:
    """A program gets one document with every answer, refusals included."""
    fake = FakeScheduler(apply_answers={"big": pb.ApplyWorkloadResponse(error_message="no")})
    argv = ("apply", "-f", "-", "-o", "json")
    result = await ask(fake, *argv, stdin=BIG + "---\n" + MANIFEST)
    assert json.loads(result.out) == {
        "items": [
            {"workloadId": "big", "refused": "no", "errorMessage": "no"},
            {"workloadId": "web", "success": True, "outcome": "Created", "revisionId": "r1"},
        ]
    }


@pytest.mark.asyncio
async def test_delete_by_id_and_by_manifest(tmp_path: Path) -> None:
    """Ids are deleted as named, manifests last first; force is passed on."""
    names = ("web", "big")
    (tmp_path / "a.yaml").write_text(MANIFEST + "---\n" + BIG)
    by_id = FakeScheduler(workloads={name: workload(name) for name in names})
    result = await ask(by_id, "delete", "workload", *names, "--force")
    assert result.out == "web is being deleted\nbig is being deleted\n"
    assert [request.force for request in by_id.asked] == [True, True]  # type: ignore[attr-defined]
    by_file = FakeScheduler(workloads={name: workload(name) for name in names})
    result = await ask(by_file, "delete", "-f", str(tmp_path))
    assert result.out == "big is being deleted\nweb is being deleted\n"


@pytest.mark.asyncio
async def test_delete_of_what_is_not_there() -> None:
    """Deleting an unknown workload fails, and goes on with the others."""
    fake = FakeScheduler(workloads={"web": workload("web")})
    result = await ask(fake, "delete", "workload", "nope", "web")
    assert result.code == ExitCode.FAILED
    assert result.err == "nope not deleted: workload 'nope' not found\n"
    assert result.out == "web is being deleted\n"


@pytest.mark.parametrize(("verb", "state"), [("start", "Running"), ("stop", "Stopped")])
@pytest.mark.asyncio
async def test_start_and_stop_change_the_desired_state_alone(verb: str, state: str) -> None:
    """decisions §2.6: only the id and the desired state are sent."""
    answer = pb.ApplyWorkloadResponse(success=True, outcome="DesiredStateChanged")
    fake = FakeScheduler(apply_answers={"web": answer})
    result = await ask(fake, verb, "workload", "web")
    assert fake.asked == [pb.ApplyWorkloadRequest(workload_id="web", desired_state=state)]
    assert (result.code, result.out) == (ExitCode.DONE, f"web: desired state is now {state}\n")


@pytest.mark.asyncio
async def test_start_refused() -> None:
    """A refused start ends in 1 with the scheduler's words."""
    answer = pb.ApplyWorkloadResponse(error_message="web is being deleted")
    result = await ask(FakeScheduler(apply_answers={"web": answer}), "start", "workload", "web")
    assert (result.code, result.err) == (ExitCode.FAILED, "error: web is being deleted\n")


@pytest.mark.asyncio
async def test_retry() -> None:
    """An accepted retry is done; one with nothing to try is a failure that says so."""
    fake = FakeScheduler(workloads={"web": workload("web")})
    accepted = await ask(fake, "retry", "workload", "web")
    refused = await ask(fake, "retry", "workload", "nope")
    assert (accepted.code, accepted.out) == (ExitCode.DONE, "web is tried again\n")
    assert (refused.code, refused.err) == (
        ExitCode.FAILED,
        "error: nope: there is nothing to try again\n",
    )


@pytest.mark.asyncio
async def test_cordon_and_uncordon() -> None:
    """The reason is passed on; a refusal is told in the scheduler's words."""
    fake = FakeScheduler()
    cordoned = await ask(fake, "node", "cordon", "n1", "--reason", "new disk")
    refused = await ask(fake, "node", "uncordon", "n1")
    assert fake.asked[0] == pb.CordonNodeRequest(node_id="n1", reason="new disk")
    assert (cordoned.code, cordoned.out) == (
        ExitCode.DONE,
        "n1 cordoned: no new work comes to it\n",
    )
    assert (refused.code, refused.err) == (ExitCode.FAILED, "error: the node is draining\n")


@pytest.mark.asyncio
async def test_filters_are_passed_on() -> None:
    """Filters are the scheduler's work; nothing is filtered twice."""
    fake = FakeScheduler()
    await ask(fake, "list", "workloads", "--node", "n1", "--status", "Pending")
    await ask(fake, "nodes", "--status", "Ready")
    assert fake.asked == [
        pb.ListWorkloadsRequest(node_id="n1", status="Pending"),
        pb.ListNodesRequest(status="Ready"),
    ]


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.asyncio
async def test_lists_are_objects_with_items(output: str) -> None:
    """A list is one document: items, beside what the answer says about itself."""
    fake = FakeScheduler(workloads={"web": workload("web"), "api": workload("api")})
    result = await ask(fake, "list", "workloads", "-o", output)
    value = yaml.safe_load(result.out)
    assert value["storeRevision"] == "7"
    assert [item["workloadId"] for item in value["items"]] == ["web", "api"]
    assert result.out == (await ask(fake, "list", "workloads", "-o", output)).out


@pytest.mark.asyncio
async def test_an_empty_list_has_items_too() -> None:
    """A program never has to ask whether there are items."""
    result = await ask(FakeScheduler(), "list", "nodes", "-o", "json")
    assert json.loads(result.out) == {"items": [], "storeRevision": "7"}


@pytest.mark.asyncio
async def test_stale_answers_carry_a_warning() -> None:
    """What the scheduler cannot vouch for is shown with a warning on standard error."""
    fake = FakeScheduler(workloads={"web": workload("web")}, stale=True)
    result = await ask(fake, "list", "workloads", "-o", "json")
    assert json.loads(result.out)["stale"] is True
    assert "out of date" in result.err
    assert "12 s ago" in result.err


@pytest.mark.asyncio
async def test_not_found() -> None:
    """What is not there ends in 1."""
    for argv in (("get", "workload", "x"), ("describe", "node", "x"), ("explain", "x")):
        result = await ask(FakeScheduler(), *argv)
        assert result.code == ExitCode.FAILED
        assert "'x' not found" in result.err


@pytest.mark.asyncio
async def test_describe_shows_everything_of_a_workload() -> None:
    """The record, the numbers of the explanation, and recent events stand in one answer."""
    explanation = pb.Explanation(
        verdict="unschedulable",
        summary="0/3 nodes: 3 cpu",
        reasons=[
            pb.ReasonCount(
                code="cpu",
                nodes=3,
                unit="millicores",
                asked=64000,
                free_max=1500,
                examples=[
                    pb.NodeRejection(
                        node_id="n1", code="cpu", unit="millicores", asked=64000, free=1500
                    )
                ],
            )
        ],
        next_try_at=at(12),
        next_step="add a node with 64 cores",
    )
    fake = FakeScheduler(
        workloads={"big": workload("big", status="Pending", failure_reason="no room")},
        explanations={"big": explanation},
        events=[pb.SchedulerEventView(id="1", type="WorkloadUnschedulable", reason="cpu")],
    )
    result = await ask(fake, "describe", "workload", "big")
    assert result.code == ExitCode.DONE
    for part in (
        "Status    Pending",
        "Failure    no room".replace("    ", "   "),
        "cpu     3      64 cores  1.5 cores  n1, 2 more",
        "n1    cpu     64 cores  1.5 cores",
        "add a node with 64 cores; the scheduler looks again in 12s",
        "WorkloadUnschedulable",
    ):
        assert part in result.out
    value = json.loads((await ask(fake, "describe", "workload", "big", "-o", "json")).out)
    assert value["explanation"]["reasons"][0]["asked"] == "64000"
    assert value["events"][0]["type"] == "WorkloadUnschedulable"


@pytest.mark.asyncio
async def test_describe_works_with_an_older_scheduler() -> None:
    """Without explanations, volumes and events the record is still shown, with a word about the
    rest."""
    unknown = Refusal(grpc.StatusCode.UNIMPLEMENTED)
    fake = FakeScheduler(
        workloads={"web": workload("web")},
        refusals=dict.fromkeys(("ExplainWorkload", "ListEvents", "ListVolumes"), unknown),
    )
    result = await ask(fake, "describe", "workload", "web")
    assert result.code == ExitCode.DONE
    assert "Running" in result.out
    assert "no explanation:" in result.err
    assert "no events:" in result.err
    assert "no volumes:" in result.err


@pytest.mark.asyncio
async def test_describe_node() -> None:
    """A node's resources add up, and its workloads are listed."""
    node = pb.NodeView(
        node_id="n1",
        status="Ready",
        cordoned=True,
        intent_reason="new disk",
        overcommitted=True,
        capacity=[pb.ResourceAmount(name="cpu", amount=4000, unit="millicores")],
        reserved=[pb.ResourceAmount(name="cpu", amount=500, unit="millicores")],
        allocated=[pb.ResourceAmount(name="cpu", amount=1500, unit="millicores")],
        labels={"b": "2", "a": "1"},
        taints=[pb.NodeTaint(key="gpu", effect="NoSchedule")],
    )
    fake = FakeScheduler(nodes={"n1": node}, workloads={"web": workload("web")})
    out = (await ask(fake, "describe", "node", "n1")).out
    assert "cpu       4 cores  500m      1.5 cores  2 cores" in out
    assert "cordoned (new disk), overcommitted" in out
    assert "a=1, b=2" in out
    assert "gpu:NoSchedule" in out
    assert "\nweb  container" in out


@pytest.mark.asyncio
async def test_summary() -> None:
    """Each workload counts once; mode and leader are named."""
    fake = FakeScheduler(
        summary=pb.GetClusterSummaryResponse(
            total_nodes=5,
            ready_nodes=2,
            draining_nodes=2,
            not_ready_nodes=1,
            total_workloads=3,
            workloads_by_status={"Running": 2, "Pending": 1},
            mode="degraded",
            mode_reason="store away",
            instance_id="s1",
            role="leader",
            leader_id="s1",
        )
    )
    assert (await ask(fake, "summary")).out.splitlines() == [
        "Mode         degraded (store away)",
        "Nodes        5: 2 ready, 2 draining, 1 not ready",
        "Workloads    3: 1 Pending, 2 Running",
        "Answered by  s1 (leader)",
        "Leader       s1",
    ]


def replicas(ha_mode: str) -> list[pb.ReplicaView]:
    """Two of them; the second says nothing of itself."""
    return [
        pb.ReplicaView(
            instance_id="s1", address="a:8085", version="0.1.0", ha_mode=ha_mode, shard="0/2"
        ),
        pb.ReplicaView(instance_id="s2", ha_mode=ha_mode, shard="1/2"),
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("ha_mode", "first", "second"),
    [
        ("failover", "leader", "standby"),
        ("active-active", "shard 0/2, leads it", "shard 1/2"),
        ("elastic", "member, coordinates", "member"),
    ],
)
async def test_summary_shows_the_replicas(ha_mode: str, first: str, second: str) -> None:
    """Who is there and where, who leads, and for how many nodes the one that answered acts."""
    fake = FakeScheduler(
        summary=pb.GetClusterSummaryResponse(
            total_nodes=5,
            ready_nodes=5,
            instance_id="s1",
            role="leader",
            leader_id="s1",
            ha_mode=ha_mode,
            shard="0/2",
            owned_nodes=3,
            replicas=replicas(ha_mode),
        )
    )
    lines = (await ask(fake, "summary")).out.splitlines()
    assert lines[-5] == f"Replicas     2, {ha_mode}, shard 0/2; this one acts for 3 of 5 nodes"
    assert lines[-4] == ""
    assert [line.split(maxsplit=3) for line in lines[-3:]] == [
        ["REPLICA", "ADDRESS", "VERSION", "PART"],
        ["s1", "a:8085", "0.1.0", first],
        ["s2", "-", "-", second],
    ]


@pytest.mark.asyncio
async def test_summary_tells_what_nobody_acts_for() -> None:
    """A foreign leader and nodes without one owner stand there only if there are any."""
    torn = pb.GetClusterSummaryResponse(
        ha_mode="elastic", unowned_nodes=2, doubly_owned_nodes=1, foreign_leader="go-1"
    )
    lines = (await ask(FakeScheduler(summary=torn), "summary")).out.splitlines()
    assert lines[-3:] == [
        "Foreign       go-1 leads and is not ours; mutations are refused",
        "Unowned       2 nodes: nobody acts for them",
        "Doubly owned  1 nodes: two replicas act for them",
    ]

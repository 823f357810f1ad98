"""Every RPC through a real server on the loopback: what reaches the core, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest
from attrs import evolve
from grpc_health.v1 import health_pb2

from persys_adapters.system_clock import SystemClock
from persys_core.control.requests import AutomationAction, AutomationSuggestion
from persys_core.model.errors import FrozenError, NotFoundError, RefusedError, StalePlanError
from persys_core.model.event import Event, EventType
from persys_core.model.node import OperatorIntent, Taint
from persys_core.model.replica import HaMode
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec
from persys_core.model.states import DesiredState, NodeStatus, WorkloadType
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.model.workload import Assignment, Failure, FailureKind, Reason
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.interceptors import RequestBoundary
from persys_server.grpc.server import SERVICE_NAME, GrpcServer, PortTakenError
from persys_server.grpc.service.later import LATER, LaterRpcs
from persys_server.grpc.servicer import ControlServicer
from tests.unit.server.fakes import (
    NOW,
    FakeScheduler,
    Loopback,
    loopback,
    node_view,
    standing,
    summary,
    workload_view,
)
from tests.unit.server.messages import apply, container, register, suggest

pytestmark = pytest.mark.asyncio


async def refused(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_register_node() -> None:
    """The normalised request goes in; interval and lease come back."""
    async with loopback() as at:
        answer = await at.stub.RegisterNode(register())
        assert answer.accepted
        assert answer.heartbeat_interval_seconds == 10
        assert answer.lease_expires_at.ToSeconds() == int(NOW.timestamp()) + 30
        assert at.scheduler.asked[0].endpoint == "10.0.0.1:50051"


async def test_a_frozen_cluster_answers_registration_with_a_reason() -> None:
    """Frozen: OK with accepted=false, not an error (decisions, answers)."""
    async with loopback(FakeScheduler(accepted=False)) as at:
        answer = await at.stub.RegisterNode(register())
        assert not answer.accepted
        assert answer.reason.startswith("scheduler degraded/recovery mode")


async def test_a_node_id_that_another_agent_has() -> None:
    """An error with a code of its own, which agents in the field answer by trying again later."""
    async with loopback(FakeScheduler(accepted=False, holder="held by 10.0.0.1:1")) as at:
        error = await refused(at.stub.RegisterNode(register()))
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS
        assert error.details() == "held by 10.0.0.1:1"


async def test_heartbeat() -> None:
    """The beat goes in; acknowledgement and lease come back."""
    async with loopback() as at:
        answer = await at.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"))
        assert answer.acknowledged
        assert not answer.drain_node
        assert answer.lease_expires_at.seconds


async def test_a_heartbeat_of_an_unknown_node_is_not_found() -> None:
    """Agents register again on exactly this answer."""
    async with loopback(FakeScheduler(known_node=False)) as at:
        error = await refused(at.stub.Heartbeat(pb.HeartbeatRequest(node_id="n9")))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert error.details() == 'node "n9" not registered'


async def test_apply_workload() -> None:
    """Stored but not placeable is success, with the reason in the explanation."""
    async with loopback() as at:
        answer = await at.stub.ApplyWorkload(apply(container(), desired_state="stop"))
        assert answer.success
        assert (answer.outcome, answer.revision_id) == ("Created", "rev")
        assert answer.explanation.verdict == "unschedulable"
        assert at.scheduler.asked[0].desired_state is DesiredState.STOPPED


@pytest.mark.parametrize(("sent", "expected"), [({}, None), ({"expected_revision": 0}, 0),
                                               ({"expected_revision": 7}, 7)])  # fmt: skip
async def test_no_expected_revision_is_not_revision_zero(
    sent: dict[str, int], expected: int | None
) -> None:
    """Absent compares nothing, as clients without the field mean it; zero means: not stored."""
    async with loopback() as at:
        await at.stub.ApplyWorkload(apply(container(), **sent))
        assert at.scheduler.asked[0].expected_revision == expected


async def test_plan_workload() -> None:
    """The wish goes in as an apply would; outcome, changes and what to expect come back."""
    async with loopback() as at:
        request = pb.PlanWorkloadRequest(
            apply=apply(container(), desired_state="stop"), max_examples=2, min_revision=40
        )
        answer = await at.stub.PlanWorkload(request)
        wish, examples, at_least = at.scheduler.asked[0]
        assert (wish.workload_id, wish.desired_state) == ("w1", DesiredState.STOPPED)
        assert (examples, at_least) == (2, 40)
        assert (answer.outcome, answer.revision_id, answer.node_id) == ("Updated", "rev", "n1")
        assert (answer.expected_revision, answer.explanation.store_revision) == (41, 42)
        assert [(each.field, each.old, each.new) for each in answer.changes] == [
            ("spec.container.image", "a", "b")
        ]
        assert [(each.name, each.amount) for each in answer.requested] == [("cpu", 500)]
        assert (answer.stale, answer.age_seconds) == (True, 3)
        assert list(answer.notes) == ["stays on n1"]


async def test_a_refused_plan_is_a_status_code() -> None:
    """No older client asks for plans, so the codes can say it."""
    async with loopback(FakeScheduler(error=RefusedError("it is being deleted"))) as at:
        request = pb.PlanWorkloadRequest(apply=apply(container()))
        error = await refused(at.stub.PlanWorkload(request))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_suggestions_of_automation() -> None:
    """The suggestion goes in with its policy; the decision comes back whole."""
    async with loopback() as at:
        answer = await at.stub.SubmitAutomationSuggestion(suggest())
        assert at.scheduler.asked == [
            AutomationSuggestion(
                "w1", AutomationAction.SET_DESIRED_STATE, "s1", "p1", "night",
                DesiredState.STOPPED, "idle",
            )
        ]  # fmt: skip
        assert (answer.accepted, answer.decision, answer.reason) == (True, "accepted", "fine")
        assert answer.applied_action == "set_desired_state"
        assert answer.decided_at.ToSeconds() == int(NOW.timestamp())


@pytest.mark.parametrize(("number", "action"), [
    (2, AutomationAction.RETRY_WORKLOAD), (3, AutomationAction.DELETE_WORKLOAD),
    (4, AutomationAction.SCALE_REPLICAS), (99, AutomationAction.UNSUPPORTED),
])  # fmt: skip
async def test_actions_of_automation(number: int, action: AutomationAction) -> None:
    """Every action reaches the core; one that we do not know is the core's to reject."""
    async with loopback() as at:
        await at.stub.SubmitAutomationSuggestion(suggest(action_type=number))
        assert at.scheduler.asked[0].action is action
        assert at.scheduler.asked[0].desired_state is None


async def test_delete_and_retry() -> None:
    """Id and force go in; the outcome comes back."""
    async with loopback() as at:
        answer = await at.stub.DeleteWorkload(
            pb.DeleteWorkloadRequest(workload_id="w/1", force=True)
        )
        assert (answer.success, answer.outcome) == (True, "Deleting")
        assert (await at.stub.RetryWorkload(pb.RetryWorkloadRequest(workload_id="w1"))).accepted
        assert at.scheduler.asked == [("w/1", True), ("w1", False)]


async def test_explain_workload() -> None:
    """The number of examples is the caller's wish."""
    async with loopback() as at:
        request = pb.ExplainWorkloadRequest(workload_id="w1", max_examples=7)
        answer = await at.stub.ExplainWorkload(request)
        assert answer.explanation.summary == "on n1"
        assert answer.stale
        assert at.scheduler.asked[-1] == ("w1", 7)


async def test_node_views_show_what_was_measured() -> None:
    """Use beside allocation, each in the contract's units, and what the agent promised; nothing
    where nothing is known."""
    used = Resources.of(cpu_millicores=1500, memory_mb=512)
    measured = NodeUsage("n1", used, NOW)
    nodes = [node_view("n1", usage=measured, stop_after_seconds=30), node_view("n2")]
    async with loopback(FakeScheduler(nodes_shown=nodes)) as at:
        shown, other = (await at.stub.ListNodes(pb.ListNodesRequest())).nodes
    assert shown.usage == pb.NodeUsage(
        cpu_allocated_millicores=1000, cpu_used_millicores=1500, memory_used_mb=512
    )
    assert shown.usage_reported_at.ToSeconds() == NOW.timestamp()
    assert not other.HasField("usage")
    assert (shown.stop_after_seconds, other.stop_after_seconds) == (30, 0)


async def test_node_views() -> None:
    """Free is allocatable less the ledger; intent, taints and freshness are shown beside it."""
    intent = OperatorIntent(cordoned=True, reason="disk", taints=(Taint("k", "v"),))
    async with loopback(FakeScheduler(nodes_shown=[node_view(intent=intent)])) as at:
        answer = await at.stub.ListNodes(pb.ListNodesRequest(status="ready", min_revision=3))
        (node,) = answer.nodes
        assert (answer.store_revision, answer.stale, answer.age_seconds) == (42, True, 3.0)
        assert (node.total_cpu_cores, node.available_cpu_cores) == (8.0, 6.0)
        assert (node.total_memory_mb, node.available_memory_mb) == (16384, 16384)
        assert (node.cordoned, node.intent_reason, node.status) == (True, "disk", "Ready")
        assert (node.taints[0].key, node.taints[0].effect) == ("k", "NoSchedule")
        assert [(a.name, a.amount, a.unit) for a in node.reserved] == [("cpu", 1000, "millicores")]
        assert at.scheduler.asked == [("ready", 3)]
        one = await at.stub.GetNode(pb.GetNodeRequest(node_id="n1"))
        assert one.node == node


async def test_drifts() -> None:
    """Each drift with what is recorded, what the agent said and what is done about it."""
    async with loopback() as at:
        answer = await at.stub.ListDrifts(pb.ListDriftsRequest(node_id="n1", min_revision=3))
        (drift,) = answer.drifts
        assert (drift.node_id, drift.workload_id, drift.type) == ("n1", "ghost", "orphan_on_agent")
        assert (drift.agent_status, drift.action) == ("Running", "operator_investigation")
        assert drift.note == "remove it"
        assert drift.HasField("detected_at")
        assert (answer.store_revision, answer.stale) == (42, True)
        assert at.scheduler.asked == [("n1", 3)]


async def test_an_overcommitted_node_shows_no_negative_room() -> None:
    """The words say overcommitted; free room ends at zero."""
    view = node_view(allocated=Resources.of(cpu_millicores=9000), overcommitted=True)
    async with loopback(FakeScheduler(nodes_shown=[view])) as at:
        node = (await at.stub.GetNode(pb.GetNodeRequest(node_id="n1"))).node
        assert (node.available_cpu_cores, node.overcommitted) == (0.0, True)


async def test_workload_views_hide_secrets() -> None:
    """A04: an error text that echoes a secret of the spec is shown without it."""
    body = ContainerSpec("nginx", env={"TOKEN": "s3cr3t-XYZ", "URL": "redis://u:pw@h"})
    spec = WorkloadSpec(WorkloadType.CONTAINER, Resources.of(memory_mb=64), body)
    text = "login with s3cr3t-XYZ at redis://u:pw@h failed"
    plain = workload_view(spec=spec)
    status = evolve(
        plain.status,
        failure=Failure("agent", text, FailureKind.WORKLOAD, NOW),
        reason=Reason("retry", "got s3cr3t-XYZ", NOW, NOW),
    )
    view = evolve(
        plain,
        status=status,
        assignment=Assignment("w1", "u1", "n7", Resources(), "", NOW),
        usage=WorkloadUsage("w1", "n7", "container", 1.5, 2, 3, 4, 5, 6, NOW, "docker.stats"),
    )
    async with loopback(FakeScheduler(workloads_shown=[view])) as at:
        answer = await at.stub.GetWorkload(pb.GetWorkloadRequest(workload_id="w1"))
        shown = answer.workload
        assert "s3cr3t" not in str(answer)
        assert "pw@" not in str(answer)
        assert shown.failure_reason == "login with *** at redis://***@h failed"
        assert (shown.reason.code, shown.reason.next_retry_at.seconds > 0) == ("retry", True)
        assert (shown.assigned_node_id, shown.usage.cpu_percent) == ("n7", 1.5)
        assert (shown.status, shown.type, shown.retry_max_attempts) == ("Pending", "container", 5)
        assert shown.requested[0].name == "memory"
        listed = await at.stub.ListWorkloads(
            pb.ListWorkloadsRequest(node_id="n7", status="PENDING")
        )
        assert listed.workloads[0] == shown
        assert at.scheduler.asked[-1] == ("n7", "PENDING", 0)


async def test_cluster_summary() -> None:
    """Each workload counts once by status; what is on its way counts as pending (defect E10)."""
    async with loopback() as at:
        answer = await at.stub.GetClusterSummary(pb.GetClusterSummaryRequest())
        assert (answer.total_nodes, answer.ready_nodes, answer.not_ready_nodes) == (2, 1, 1)
        assert (answer.total_workloads, answer.running_workloads) == (3, 1)
        assert (answer.pending_workloads, answer.deleted_workloads) == (1, 1)
        assert dict(answer.workloads_by_status) == {"Running": 1, "RetryPending": 1, "Deleting": 1}
        assert (answer.mode, answer.role, answer.leader_id) == ("normal", "leader", "replica-1")


async def test_the_summary_names_the_replicas() -> None:
    """Clients find who leads, and every other replica with its address, without DNS."""
    at_elastic = standing(
        ha_mode=HaMode.ELASTIC,
        role="owner",
        shard="v7, 2 of 3 members",
        unowned_nodes=1,
        doubly_owned_nodes=3,
        foreign_leader="go-1",
    )
    async with loopback(FakeScheduler(summary_shown=summary(standing=at_elastic))) as at:
        answer = await at.stub.GetClusterSummary(pb.GetClusterSummaryRequest())
    assert (answer.ha_mode, answer.role) == ("elastic", "owner")
    assert (answer.shard, answer.foreign_leader) == ("v7, 2 of 3 members", "go-1")
    assert (answer.owned_nodes, answer.unowned_nodes, answer.doubly_owned_nodes) == (2, 1, 3)
    first, second = answer.replicas
    assert (first.instance_id, first.address, first.version) == (
        "replica-1", "10.0.0.1:8085", "0.1.0",
    )  # fmt: skip
    assert first.registered_at.ToSeconds() == int(NOW.timestamp())
    assert (second.instance_id, second.ha_mode, second.shard) == ("replica-2", "failover", "")


async def test_a_draining_node_has_a_counter_of_its_own() -> None:
    """It takes no work, and nothing is wrong with it."""
    nodes = {NodeStatus.READY: 3, NodeStatus.DRAINING: 2, NodeStatus.NOT_READY: 1}
    async with loopback(FakeScheduler(summary_shown=summary(nodes_by_status=nodes))) as at:
        answer = await at.stub.GetClusterSummary(pb.GetClusterSummaryRequest())
        shown = (answer.ready_nodes, answer.draining_nodes, answer.not_ready_nodes)
        assert (answer.total_nodes, shown) == (6, (3, 2, 1))


async def test_cordon_and_uncordon() -> None:
    """The operator's words go in; the node as it is then comes back."""
    async with loopback() as at:
        request = pb.CordonNodeRequest(node_id="n1", reason="disk")
        answer = await at.stub.CordonNode(request)
        assert (answer.accepted, answer.node.cordoned) == (True, True)
        assert at.scheduler.asked[0].reason == "disk"
        back = await at.stub.UncordonNode(pb.UncordonNodeRequest(node_id="n1"))
        assert not back.node.cordoned


async def test_events_are_listed_oldest_first() -> None:
    """Filters and limit are the caller's; details are masked by name."""
    async with loopback() as at:
        for number in range(4):
            at.events.append(
                Event(EventType.NODE_LOST, NOW, node_id=f"n{number}", details={"token": "x"})
            )
        request = pb.ListEventsRequest(limit=2, type="nodelost")
        events = (await at.stub.ListEvents(request)).events
        assert [event.node_id for event in events] == ["n2", "n3"]
        assert events[0].details["token"] == "***"
        none = await at.stub.ListEvents(pb.ListEventsRequest(workload_id="w1", min_revision=7))
        assert not none.events
        assert none.store_revision == 42
        assert at.scheduler.asked == [7]


async def test_events_are_watched_live_until_the_replica_stops() -> None:
    """History, then live; at a stop the stream ends at once with UNAVAILABLE and how to go on."""
    async with loopback() as at:
        at.events.append(Event(EventType.NODE_JOINED, NOW, node_id="n1"))
        stream = at.stub.WatchEvents(pb.WatchEventsRequest())
        received = aiter(stream)
        assert (await anext(received)).node_id == "n1"
        at.events.append(Event(EventType.NODE_LOST, NOW, node_id="n2"))
        assert (await anext(received)).node_id == "n2"
        at.phase.stop()
        error = await refused(anext(received))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "after_id" in str(error.details())


async def test_a_watcher_that_goes_away_leaves_nothing_behind() -> None:
    """Cancelling the stream ends its tail, and is counted as Canceled."""
    async with loopback() as at:
        at.events.append(Event(EventType.NODE_JOINED, NOW, node_id="n1"))
        stream = at.stub.WatchEvents(pb.WatchEventsRequest(type="NodeJoined"))
        await anext(aiter(stream))
        stream.cancel()
        await asyncio.wait_for(at.metrics.counted.wait(), 5)
        assert at.served() == {("WatchEvents", "Canceled"): 1}


REFUSALS: list[tuple[str, Callable[[Loopback], Awaitable[object]], str]] = [
    ("register", lambda at: at.stub.RegisterNode(register(node_id="")), "node_id"),
    ("heartbeat", lambda at: at.stub.Heartbeat(pb.HeartbeatRequest()), "node_id"),
    ("apply", lambda at: at.stub.ApplyWorkload(apply(container(image=""))), "spec.container.image"),
    ("delete", lambda at: at.stub.DeleteWorkload(pb.DeleteWorkloadRequest()), "workload_id"),
    ("retry", lambda at: at.stub.RetryWorkload(pb.RetryWorkloadRequest()), "workload_id"),
    ("get node", lambda at: at.stub.GetNode(pb.GetNodeRequest()), "node_id"),
    ("get", lambda at: at.stub.GetWorkload(pb.GetWorkloadRequest()), "workload_id"),
    ("nodes", lambda at: at.stub.ListNodes(pb.ListNodesRequest(status="Up")), "status"),
    ("nodes rev", lambda at: at.stub.ListNodes(pb.ListNodesRequest(min_revision=-1)),
     "min_revision"),
    ("list", lambda at: at.stub.ListWorkloads(pb.ListWorkloadsRequest(status="Up")), "status"),
    ("summary", lambda at: at.stub.GetClusterSummary(
        pb.GetClusterSummaryRequest(min_revision=-1)), "min_revision"),
    ("events", lambda at: at.stub.ListEvents(pb.ListEventsRequest(limit=-1)), "limit"),
    ("event type", lambda at: at.stub.ListEvents(pb.ListEventsRequest(type="Nope")), "type"),
    ("explain", lambda at: at.stub.ExplainWorkload(
        pb.ExplainWorkloadRequest(workload_id="w", max_examples=-1)), "max_examples"),
    ("plan", lambda at: at.stub.PlanWorkload(
        pb.PlanWorkloadRequest(apply=apply(container(image="")))), "spec.container.image"),
    ("plan nothing", lambda at: at.stub.PlanWorkload(pb.PlanWorkloadRequest()),
     "workload_id"),
    ("expected", lambda at: at.stub.ApplyWorkload(apply(container(), expected_revision=-1)),
     "expected_revision"),
    ("no suggestion", lambda at: at.stub.SubmitAutomationSuggestion(
        pb.SubmitAutomationSuggestionRequest()), "suggestion is required"),
    ("no target", lambda at: at.stub.SubmitAutomationSuggestion(suggest(target_workload=" ")),
     "suggestion.target_workload"),
    ("no action", lambda at: at.stub.SubmitAutomationSuggestion(suggest(action_type=0)),
     "suggestion.action_type"),
    ("no state", lambda at: at.stub.SubmitAutomationSuggestion(suggest(desired_state="")),
     "suggestion.desired_state"),
    ("drifts", lambda at: at.stub.ListDrifts(pb.ListDriftsRequest(min_revision=-1)),
     "min_revision"),
    ("cordon", lambda at: at.stub.CordonNode(pb.CordonNodeRequest()), "node_id"),
    ("uncordon", lambda at: at.stub.UncordonNode(pb.UncordonNodeRequest()), "node_id"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "field"), [(c, f) for _, c, f in REFUSALS],
                         ids=[name for name, _, _ in REFUSALS])  # fmt: skip
async def test_bad_input_never_reaches_the_core(
    call: Callable[[Loopback], Awaitable[object]], field: str
) -> None:
    """A01, R4: INVALID_ARGUMENT names the field; nothing is asked of the core."""
    async with loopback() as at:
        error = await refused(call(at))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in str(error.details())
        assert at.scheduler.asked == []


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (FrozenError("store away"), grpc.StatusCode.UNAVAILABLE,
         "scheduler degraded/recovery mode: store away"),
        (NotFoundError("workload", "w1"), grpc.StatusCode.NOT_FOUND, 'workload "w1" not found'),
        (RefusedError("it is being deleted"), grpc.StatusCode.FAILED_PRECONDITION,
         "it is being deleted"),
    ],
)  # fmt: skip
async def test_mutations_are_refused_with_the_right_code(
    raised: Exception, code: grpc.StatusCode, text: str
) -> None:
    """Frozen, unknown and not permitted are three answers of operators' calls."""
    async with loopback(FakeScheduler(error=raised)) as at:
        error = await refused(at.stub.CordonNode(pb.CordonNodeRequest(node_id="n1")))
        assert (error.code(), error.details()) == (code, text)


@pytest.mark.parametrize(
    "raised", [NotFoundError("workload", "w1"), RefusedError("it is being deleted")]
)
async def test_unknown_and_not_permitted_wishes_are_answered_in_the_response(
    raised: Exception,
) -> None:
    """The contract's own fields say no; a status code would make existing gateways give up on
    this scheduler."""
    async with loopback(FakeScheduler(error=raised)) as at:
        applied = await at.stub.ApplyWorkload(apply(container()))
        assert (applied.success, applied.error_message) == (False, str(raised))
        deleted = await at.stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="w1"))
        assert (deleted.success, deleted.error_message) == (False, str(raised))
        retried = await at.stub.RetryWorkload(pb.RetryWorkloadRequest(workload_id="w1"))
        assert (retried.accepted, retried.message) == (False, str(raised))


async def test_a_stale_plan_is_no_wrong_spec() -> None:
    """Only the text says no: the contract has no word of its own for it."""
    async with loopback(FakeScheduler(error=StalePlanError("stale plan: w1"))) as at:
        answer = await at.stub.ApplyWorkload(apply(container(), expected_revision=41))
        assert (answer.success, answer.error_message) == (False, "stale plan: w1")
        assert answer.failure_reason == pb.FAILURE_REASON_UNSPECIFIED


async def test_frozen_wishes_are_unavailable() -> None:
    """Decisions, answers: frozen is UNAVAILABLE, for every wish."""
    async with loopback(FakeScheduler(error=FrozenError("store away"))) as at:
        for call in (
            at.stub.ApplyWorkload(apply(container())),
            at.stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="w1")),
            at.stub.RetryWorkload(pb.RetryWorkloadRequest(workload_id="w1")),
        ):
            assert (await refused(call)).code() is grpc.StatusCode.UNAVAILABLE


async def test_every_rpc_of_the_contract_is_served_or_refused_with_a_way_out() -> None:
    """UNIMPLEMENTED says what the RPC will do and what to use instead; none is forgotten."""
    names = {method.name for method in pb.DESCRIPTOR.services_by_name["AgentControl"].methods}
    topics = [kind for kind in ControlServicer.__bases__ if kind is not LaterRpcs]
    own = {name for kind in topics for name in vars(kind) if name in names}
    assert own | set(LATER) == names
    assert not own & set(LATER)
    async with loopback() as at:
        error = await refused(at.stub.CreateDisk(pb.CreateDiskRequest(name="d")))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "managed_volumes" in str(error.details())
        stream = at.stub.ControlStream(iter([pb.ControlMessage()]))
        error = await refused(anext(aiter(stream)))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_follows_the_phase() -> None:
    """The server and the service say NOT_SERVING until told otherwise."""
    async with loopback() as at:
        check = at.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        for serving in (False, True, False):
            await at.server.set_serving(serving)
            for name in ("", SERVICE_NAME):
                answer = await check(health_pb2.HealthCheckRequest(service=name))
                assert (answer.status == health_pb2.HealthCheckResponse.SERVING) is serving


async def test_a_taken_port_is_an_error_that_says_so() -> None:
    """No silent sharing of a port with another server."""
    async with loopback() as at:
        servicer = ControlServicer(
            at.scheduler, events=at.events, clock=SystemClock(), phase=at.phase
        )
        second = GrpcServer(servicer, RequestBoundary(at.metrics, at.phase, SystemClock()))
        with pytest.raises(PortTakenError, match=f"{at.server.port}.*--grpc-port"):
            await second.start("127.0.0.1", at.server.port)

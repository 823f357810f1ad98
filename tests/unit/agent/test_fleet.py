from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest

from persys_agent.simulated.control_http import ControlServer
from persys_agent.simulated.fleet import (
    FleetOptions,
    PortTakenError,
    SimulatedFleet,
    UnknownNodeError,
)
from persys_proto.agent.v1 import agent_pb2 as agent
from persys_proto.aio import agent_service_stub
from persys_proto.control.v1 import control_pb2 as control
from persys_proto.control.v1 import control_pb2_grpc

pytestmark = pytest.mark.slow

EPOCH = (("persys-epoch", "1"),)


class FakeScheduler(control_pb2_grpc.AgentControlServicer):
    """Takes every node in and notes what they say."""

    def __init__(self) -> None:
        self.accepts = True
        self.knows = True
        self.registered: list[control.RegisterNodeRequest] = []
        self.beats: list[control.HeartbeatRequest] = []

    async def RegisterNode(
        self, request: control.RegisterNodeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> control.RegisterNodeResponse:
        self.registered.append(request)
        answer = control.RegisterNodeResponse(
            accepted=self.accepts, reason="full", heartbeat_interval_seconds=1
        )
        answer.lease_expires_at.FromDatetime(datetime.now(UTC) + timedelta(seconds=30))
        return answer

    async def Heartbeat(
        self, request: control.HeartbeatRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> control.HeartbeatResponse:
        self.beats.append(request)
        if not self.knows:
            await context.abort(grpc.StatusCode.NOT_FOUND, "who is that?")
        return control.HeartbeatResponse(acknowledged=True)


@asynccontextmanager
async def scheduling() -> AsyncIterator[tuple[FakeScheduler, str]]:
    scheduler, server = FakeScheduler(), grpc.aio.server()
    control_pb2_grpc.add_AgentControlServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield scheduler, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1500):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("did not hold within 15 s")


def container(image: str = "nginx") -> agent.WorkloadSpec:
    return agent.WorkloadSpec(container=agent.ContainerSpec(image=image))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_nodes_register_with_what_they_are_and_beat() -> None:
    """Capabilities, labels and endpoint arrive; beats of ours carry boot id and revision."""
    async with scheduling() as (scheduler, address):
        options = FleetOptions(
            nodes=2,
            scheduler=address,
            labels={"zone": "a"},
            cpu_millicores=4000,
            latency=0,
            storage_drivers=frozenset({"local", "nfs"}),
        )
        async with SimulatedFleet(options) as fleet:
            await until(lambda: len(scheduler.registered) == 2)
            presented = min(scheduler.registered, key=lambda each: each.node_id)
            assert presented.node_id == "sim-1"
            assert presented.capabilities.cpu_total_millicores == 4000
            assert presented.capabilities.storage_pools[0].total_gb == 200
            assert list(presented.capabilities.supported_workload_types) == [
                "container",
                "compose",
                "vm",
            ]
            assert list(presented.capabilities.supported_storage_drivers) == ["local", "nfs"]
            assert dict(presented.labels) == {"zone": "a"}
            assert presented.grpc_endpoint == fleet.node("sim-1").endpoint
            async with grpc.aio.insecure_channel(presented.grpc_endpoint) as channel:
                await agent_service_stub(channel).ApplyWorkload(
                    agent.ApplyWorkloadRequest(id="w1", revision_id="r1", spec=container()),
                    timeout=5,
                )
            await until(lambda: any(_runs(beat, "w1") for beat in scheduler.beats))
            beat = next(beat for beat in scheduler.beats if _runs(beat, "w1"))
            assert beat.boot_id
            assert beat.sequence > 0
            assert beat.workload_statuses[0].revision_id == "r1"
            assert beat.workload_usage[0].workload_id == "w1"
            assert beat.usage.cpu_used_millicores > 0
            assert beat.usage.cpu_allocated_millicores == 0
            assert fleet.node("sim-1").running == 1


def _runs(beat: control.HeartbeatRequest, workload_id: str) -> bool:
    return any(
        status.workload_id == workload_id and status.state == "Running"
        for status in beat.workload_statuses
    )


@pytest.mark.slow
@pytest.mark.asyncio
async def test_legacy_nodes_send_what_old_agents_send() -> None:
    """No boot id, no sequence."""
    async with scheduling() as (scheduler, address):
        async with SimulatedFleet(FleetOptions(scheduler=address, legacy=True)):
            await until(lambda: bool(scheduler.beats))
        assert (scheduler.beats[0].boot_id, scheduler.beats[0].sequence) == ("", 0)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_two_runs_with_one_seed_have_different_boot_ids() -> None:
    """A boot id is never used again, or a scheduler would drop the beats as old."""
    async with scheduling() as (scheduler, address):
        for _ in range(2):
            seen = {beat.boot_id for beat in scheduler.beats}
            async with SimulatedFleet(FleetOptions(scheduler=address, seed=5)):
                await until(partial(_has_new_boot_id, scheduler, seen))


def _has_new_boot_id(scheduler: FakeScheduler, seen: set[str]) -> bool:
    return any(beat.boot_id not in seen for beat in scheduler.beats)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_refusal_and_an_unknown_node_show_as_problems() -> None:
    """What the scheduler says is seen in the node's view."""
    async with scheduling() as (scheduler, address):
        scheduler.accepts = False
        async with SimulatedFleet(FleetOptions(scheduler=address)) as fleet:
            await until(lambda: "refused: full" in fleet.node("sim-1").problem)
            scheduler.accepts, scheduler.knows = True, False
            await until(lambda: "does not know" in fleet.node("sim-1").problem)
            scheduler.knows = True
            await until(lambda: fleet.node("sim-1").problem == "" and len(scheduler.beats) > 1)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_killed_node_is_silent_and_comes_back_at_its_endpoint() -> None:
    """Neither beats nor answers come from it until it is revived."""
    async with (
        scheduling() as (scheduler, address),
        SimulatedFleet(FleetOptions(scheduler=address)) as fleet,
    ):
        await until(lambda: bool(scheduler.beats))
        before = fleet.node("sim-1").endpoint
        assert (await fleet.kill("sim-1")).state == "off"
        count = len(scheduler.beats)
        async with grpc.aio.insecure_channel(before) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await agent_service_stub(channel).HealthCheck(agent.HealthCheckRequest(), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert len(scheduler.beats) == count
        revived = await fleet.revive("sim-1")
        assert (revived.state, revived.endpoint) == ("up", before)
        await until(lambda: len(scheduler.registered) == 2)


@pytest.mark.asyncio
async def test_a_paused_node_carries_out_late_what_it_took_in() -> None:
    """Its caller's deadline passes; the apply has its effect when the node goes on."""
    async with SimulatedFleet(FleetOptions(latency=0)) as fleet:
        at = fleet.node("sim-1").endpoint
        await fleet.pause("sim-1")
        async with grpc.aio.insecure_channel(at) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await agent_service_stub(channel).ApplyWorkload(
                    agent.ApplyWorkloadRequest(id="w1", revision_id="r1", spec=container()),
                    timeout=0.3,
                )
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert fleet.node("sim-1").running == 0
        await fleet.revive("sim-1")
        await until(lambda: fleet.node("sim-1").running == 1)


@pytest.mark.asyncio
async def test_what_a_paused_node_took_in_is_lost_when_it_is_killed() -> None:
    """A process that died carries nothing out after its restart."""
    async with SimulatedFleet(FleetOptions(latency=0)) as fleet:
        at = fleet.node("sim-1").endpoint
        await fleet.pause("sim-1")
        async with grpc.aio.insecure_channel(at) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await agent_service_stub(channel).ApplyWorkload(
                    agent.ApplyWorkloadRequest(id="w1", revision_id="r1", spec=container()),
                    timeout=0.3,
                )
        await fleet.kill("sim-1")
        await fleet.revive("sim-1")
        async with grpc.aio.insecure_channel(at) as channel:
            answer = await agent_service_stub(channel).ListActions(
                agent.ListActionsRequest(), timeout=5
            )
        assert list(answer.actions) == []


@pytest.mark.asyncio
async def test_the_service_answers_as_agents_in_the_field_do() -> None:
    """Missing specs, unknown ids, filters and limits."""
    async with (
        SimulatedFleet(FleetOptions(latency=0, legacy=True)) as fleet,
        grpc.aio.insecure_channel(fleet.node("sim-1").endpoint) as channel,
    ):
        stub = agent_service_stub(channel)
        bad = await stub.ApplyWorkload(agent.ApplyWorkloadRequest(id="w"), timeout=5)
        assert not bad.applied
        assert bad.message.startswith("invalid request: spec must contain")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetWorkloadStatus(agent.GetWorkloadStatusRequest(id="w"), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert caught.value.details() == "status not found: status not found"
        for name, image in (("w1", "nginx"), ("w2", "missing")):
            wish = agent.ApplyWorkloadRequest(id=name, revision_id="r", spec=container(image))
            answer = await stub.ApplyWorkload(wish, timeout=5, metadata=EPOCH)
            assert answer.applied
            assert answer.status.metadata["task_status"] == "pending"
        await until(lambda: fleet.node("sim-1").running == 1)
        await until(lambda: all(task.is_finished for task in _tasks(fleet)))
        machines = await stub.ListWorkloads(
            agent.ListWorkloadsRequest(type=agent.WORKLOAD_TYPE_VM), timeout=5
        )
        assert list(machines.workloads) == []
        newest = await stub.ListActions(
            agent.ListActionsRequest(limit=1, newest_first=True), timeout=5
        )
        assert [action.workload_id for action in newest.actions] == ["w2"]
        assert newest.actions[0].status == "failed"
        health = await stub.HealthCheck(agent.HealthCheckRequest(), timeout=5)
        assert set(health.runtime_status) == {"container", "compose", "vm"}


def _tasks(fleet: SimulatedFleet) -> tuple[Any, ...]:
    return fleet.model("sim-1").actions(datetime.now(UTC))


@pytest.mark.asyncio
async def test_an_unknown_node_is_named_with_those_there_are() -> None:
    """The error lists what could have been meant."""
    async with SimulatedFleet(FleetOptions(nodes=2)) as fleet:
        with pytest.raises(UnknownNodeError, match="sim-1, sim-2"):
            await fleet.kill("sim-9")


@pytest.mark.asyncio
async def test_a_host_that_is_not_ours_fails_at_the_start() -> None:
    """The error says what to change, and no node is left running."""
    fleet = SimulatedFleet(FleetOptions(listen="192.0.2.1"))
    with pytest.raises(PortTakenError, match="--listen"):
        await fleet.start()
    assert fleet.nodes() == ()


@pytest.mark.asyncio
async def test_the_http_interface_breaks_and_mends_nodes() -> None:
    """Kill, pause and revive answer with the node as it stands then."""
    async with SimulatedFleet(FleetOptions(nodes=2)) as fleet:
        server = ControlServer(fleet)
        await server.start()
        try:
            for verb, state in (("pause", "paused"), ("kill", "off"), ("revive", "up")):
                status, body = await _http(server.port, f"POST /nodes/sim-2/{verb}")
                assert (status, body["state"]) == (200, state)
            status, body = await _http(server.port, "POST /nodes")
            assert body["node_id"] == "sim-3"
            status, body = await _http(server.port, "GET /nodes")
            assert [node["node_id"] for node in body["nodes"]] == ["sim-1", "sim-2", "sim-3"]
        finally:
            await server.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("line", "status", "word"),
    [
        ("GET /nodes/ghost", 404, "sim-1"),
        ("POST /nodes/ghost/kill", 404, "sim-1"),
        ("GET /", 404, "GET /nodes"),
        ("DELETE /nodes/sim-1", 405, "accepted"),
        ("GET /nodes/sim-1/kill", 405, "POST"),
        ("nonsense", 400, "HTTP"),
    ],
)
async def test_wrong_http_requests_say_what_is_accepted(line: str, status: int, word: str) -> None:
    """Each has its status and a text that helps."""
    async with SimulatedFleet() as fleet:
        server = ControlServer(fleet)
        await server.start()
        try:
            answered, body = await _http(server.port, line)
        finally:
            await server.stop()
    assert answered == status
    assert word in body["error"]


async def _http(port: int, line: str) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)

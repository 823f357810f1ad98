"""Clients and agents of earlier releases, which know nothing of our additions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from persys_agent.simulated.fleet import FleetOptions, SimulatedFleet
from persys_proto.agent.v1 import agent_pb2 as agent
from persys_proto.aio import agent_service_stub
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from tests.e2e.processes import client, server, server_environment, started, watching

pytestmark = pytest.mark.slow
OURS_FROM = 100


def of_their_time(message: Message) -> bool:
    """Whether a message has only fields that were there before ours, at any depth."""
    for field, value in message.ListFields():
        if field.number >= OURS_FROM:
            return False
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        nested = value if field.is_repeated else [value]
        if not all(map(of_their_time, nested)):
            return False
    return True


def wish(desired_state: str = "") -> pb.ApplyWorkloadRequest:
    """An apply as the command line of the field sends it."""
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=100, memory_mb=64),
        container=pb.ContainerSpec(image="nginx:1.27", restart_policy="always"),
    )
    request = pb.ApplyWorkloadRequest(
        workload_id="w", spec=spec, revision_id="rev-1", desired_state=desired_state
    )
    assert of_their_time(request)
    return request


def only_desired(state: str) -> pb.ApplyWorkloadRequest:
    """How start and stop are asked for: the id and the new state, nothing else."""
    return pb.ApplyWorkloadRequest(workload_id="w", desired_state=state)


@pytest.mark.asyncio
async def test_an_agent_of_the_field_serves_an_old_client(tmp_path: Path) -> None:
    """Apply, stop, start and delete go through `--legacy`: no boot id, no revisions, any order."""
    async with (
        server(tmp_path) as running,
        started(
            "persys-agent", "run", "--runtime", "simulated", "--legacy", "--insecure",
            "--latency", "0.1", "--nodes", "2", "--scheduler", running.address,
            log=tmp_path / "agent.log", env=server_environment(tmp_path),
        ),
        watching(running.address) as eye,
        client(running.address) as stub,
    ):  # fmt: skip

        async def reaches(state: str) -> bool:
            return await eye.until(lambda seen: [w.status for w in seen.workloads] == [state], 15)

        assert await eye.until(lambda seen: len(seen.nodes) == 2, 20)
        assert (await stub.ApplyWorkload(wish(desired_state="Running"), timeout=5)).success
        assert await reaches("Running"), running.text
        revision = eye.picture.workloads[0].revision_id

        assert (await stub.ApplyWorkload(only_desired("Stopped"), timeout=5)).success
        assert await reaches("Stopped"), running.text
        assert (await stub.ApplyWorkload(only_desired("Running"), timeout=5)).success
        assert await reaches("Running"), running.text
        assert eye.picture.workloads[0].revision_id == revision, "the specification is kept"

        deleted = await stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="w"), timeout=5)
        assert deleted.success
        assert await eye.until(lambda seen: not seen.workloads, 15), running.text


@asynccontextmanager
async def beating(
    stub: control_pb2_grpc.AgentControlAsyncStub, endpoint: str
) -> AsyncIterator[None]:
    """Heartbeats of a node with what its agent lists, without revision, boot id or sequence."""

    async def beat() -> None:
        async with grpc.aio.insecure_channel(endpoint) as channel:
            there = agent_service_stub(channel)
            while True:
                listed = await there.ListWorkloads(agent.ListWorkloadsRequest())
                request = pb.HeartbeatRequest(
                    node_id="old-1",
                    usage=pb.NodeUsage(cpu_used_millicores=100, memory_used_mb=64),
                    workload_statuses=[
                        pb.WorkloadStatus(
                            workload_id=each.id,
                            state=agent.ActualState.Name(each.actual_state).rpartition("_")[2],
                        )
                        for each in listed.workloads
                    ],
                )
                assert of_their_time(request)
                assert (await stub.Heartbeat(request, timeout=5)).acknowledged
                await asyncio.sleep(0.5)

    beats = asyncio.create_task(beat())
    try:
        yield
    finally:
        beats.cancel()
        outcome = await asyncio.gather(beats, return_exceptions=True)
        assert isinstance(outcome[0], asyncio.CancelledError), outcome


@pytest.mark.simulated("an agent of the field")
@pytest.mark.asyncio
async def test_a_registration_of_the_field_is_enough(tmp_path: Path) -> None:
    """Register, beat and run with the fields of the first contract alone; strangers register."""
    standalone = FleetOptions(nodes=1, node_id="old-1", legacy=True, latency=0.1)
    async with (
        server(tmp_path) as running,
        SimulatedFleet(standalone) as fleet,
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await stub.Heartbeat(pb.HeartbeatRequest(node_id="old-1"), timeout=5)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND

        endpoint = fleet.node("old-1").endpoint
        registration = pb.RegisterNodeRequest(
            node_id="old-1",
            capabilities=pb.NodeCapabilities(
                cpu_total_millicores=4000,
                memory_total_mb=8192,
                supported_workload_types=["container"],
            ),
            grpc_endpoint=endpoint,
        )
        assert of_their_time(registration)
        answer = await stub.RegisterNode(registration, timeout=5)
        assert answer.accepted
        assert answer.heartbeat_interval_seconds >= 1
        async with beating(stub, endpoint):
            assert (await stub.ApplyWorkload(wish(), timeout=5)).success
            runs = await eye.until(
                lambda seen: [w.status for w in seen.workloads] == ["Running"], 20
            )
            assert runs, running.text
            assert fleet.node("old-1").running == 1


def test_the_check_of_old_messages_can_fail() -> None:
    """A field of ours is found at the top and inside."""
    assert not of_their_time(pb.HeartbeatRequest(boot_id="b"))
    status = pb.WorkloadStatus(workload_id="w", revision_id="r")
    assert not of_their_time(pb.HeartbeatRequest(workload_statuses=[status]))
    assert of_their_time(pb.RegisterNodeRequest(labels={"a": "b"}))

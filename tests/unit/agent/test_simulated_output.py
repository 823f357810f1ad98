"""StreamLogs and Exec of simulated agents: their journal as output, and no commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from persys_agent.runtimes.port import LogLine
from persys_agent.simulated.fleet import FleetOptions, SimulatedFleet
from persys_agent.simulated.output import SimulatedOutput
from persys_core.model.states import RestartPolicy
from persys_core.ports.agents import DeleteRequest
from persys_core.sim.agent import AgentModel
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.agent_settings import our_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.aio import agent_service_stub
from tests.unit.sim.support import request, seconds, spec

if TYPE_CHECKING:
    from persys_proto.agent.v1.agent_pb2_grpc import AgentServiceAsyncStub


async def machine(
    clock: VirtualClock,
    *,
    exit_after: timedelta | None = None,
    exit_code: int = 0,
    restart: RestartPolicy = RestartPolicy.NO,
) -> AgentModel:
    """A node with a workload ``w1`` that was applied five seconds ago."""
    plan = FaultPlan(workloads={"w1": Behaviour(exit_after=exit_after, exit_code=exit_code)})
    model = AgentModel(our_agent("n1"), clock.now(), plan=plan)
    model.apply(request(of=spec(restart=restart), epoch=1), clock.now())
    await clock.sleep(seconds(5))
    return model


async def heard(lines: AsyncIterator[LogLine]) -> list[tuple[str, str]]:
    """Stream and text of every line."""
    return [(line.stream, line.text) async for line in lines]


CREATED = ("stdout", "simulated workload w1 created at revision r1")
STARTED = ("stdout", "simulated workload w1 started")


@virtual_time()
async def test_the_journal_is_the_output(clock: VirtualClock) -> None:
    """What befell the workload, oldest first, as many lines as are asked for."""
    output = await machine(clock)
    for tail, expected in ((9, [CREATED, STARTED]), (1, [STARTED]), (0, [])):
        lines = SimulatedOutput(output, clock, "w1").lines(tail=tail, follow=False)
        assert await heard(lines) == expected


@virtual_time()
async def test_the_end_of_a_run_ends_the_output(clock: VirtualClock) -> None:
    """Followed output ends when the workload does; a failure is told on standard error."""
    model = await machine(clock, exit_after=seconds(60), exit_code=3)
    lines = SimulatedOutput(model, clock, "w1").lines(tail=1, follow=True)
    assert await heard(lines) == [STARTED, ("stderr", "simulated workload w1 exited with code 3")]
    again = SimulatedOutput(model, clock, "w1").lines(tail=0, follow=True)
    assert await heard(again) == []


@virtual_time()
async def test_a_restart_by_the_runtime_is_no_end(clock: VirtualClock) -> None:
    """While its policy starts it again the output goes on, until somebody removes it."""
    model = await machine(clock, exit_after=seconds(60), restart=RestartPolicy.ALWAYS)
    lines = SimulatedOutput(model, clock, "w1").lines(tail=0, follow=True)
    hearing = asyncio.create_task(heard(lines))
    await clock.sleep(seconds(100))
    model.delete(DeleteRequest("w1", 2, False), clock.now())
    told = [text.removeprefix("simulated workload w1 ") for _, text in await hearing]
    assert told == ["exited with code 0", "started", "stopped", "removed"]


@virtual_time()
async def test_lines_have_the_machines_time(clock: VirtualClock) -> None:
    """Instants are those of the machine's own clock."""
    model = await machine(clock)
    model.set_clock(timedelta(hours=1))
    lines = SimulatedOutput(model, clock, "w1").lines(tail=1, follow=False)
    (line,) = [each async for each in lines]
    assert line.at is not None
    assert timedelta(minutes=59) < line.at - clock.now() < timedelta(hours=1)


@asynccontextmanager
async def asked(*, legacy: bool = False) -> AsyncIterator[AgentServiceAsyncStub]:
    """A client of a node that runs `web`."""
    async with SimulatedFleet(FleetOptions(latency=0, legacy=legacy)) as fleet:
        endpoint = fleet.nodes()[0].endpoint
        async with grpc.aio.insecure_channel(endpoint) as channel:
            stub = agent_service_stub(channel)
            body = wire.WorkloadSpec(container=wire.ContainerSpec(image="nginx"))
            apply = wire.ApplyWorkloadRequest(id="web", revision_id="r1", spec=body)
            await stub.ApplyWorkload(apply, timeout=5)
            async with asyncio.timeout(10):
                while not fleet.nodes()[0].running:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            yield stub


async def commanded(stub: AgentServiceAsyncStub, workload_id: str) -> grpc.aio.AioRpcError:
    """How a command inside the workload is refused."""
    call = stub.Exec(timeout=5)
    await call.write(wire.ExecRequest(start=wire.ExecStart(id=workload_id, command=["ls"])))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    return caught.value


@pytest.mark.asyncio
async def test_over_the_wire() -> None:
    """Lines come with their instants; no command is run, and why is said; what the node does not
    have it does not know."""
    async with asked() as stub:
        follow = wire.StreamLogsRequest(id="web", tail=9, follow=True)
        call = stub.StreamLogs(follow, timeout=10)
        lines = []
        async for line in call:
            lines.append(line)
            if line.text.endswith("started"):
                break
        call.cancel()
        assert [each.text.split()[3] for each in lines] == ["created", "started"]
        assert all(each.at_ms > 0 and each.stream == "stdout" for each in lines)
        refused, unknown = await commanded(stub, "web"), await commanded(stub, "other")
        assert refused.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert refused.details() == "simulated workloads run no commands"
        assert unknown.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.asyncio
async def test_old_agents_know_neither() -> None:
    """A node that behaves as agents in the field do answers UNIMPLEMENTED."""
    async with asked(legacy=True) as stub:
        call = stub.StreamLogs(wire.StreamLogsRequest(id="web"), timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert (await commanded(stub, "web")).code() is grpc.StatusCode.UNIMPLEMENTED

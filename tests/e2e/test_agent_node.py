"""One real agent as a process, under a real scheduler, on a runtime in its memory."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from persys_proto.agent.v1 import agent_pb2
from persys_proto.aio import agent_service_stub
from persys_proto.control.v1 import control_pb2 as pb
from tests.e2e.processes import (
    Program,
    Server,
    client,
    container,
    eventually,
    free_port,
    server,
    server_environment,
    started,
)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


@asynccontextmanager
async def agent(log: Path, scheduler: str, port: int) -> AsyncIterator[Program]:
    """A `persys-agent run` with its state beside ``log``, once it has started."""
    data = log.with_suffix(".data")
    env = {**server_environment(data), "PERSYS_NODE_ID": "n1", "PERSYS_METRICS_PORT": "0"}
    for name in ("PERSYS_STORE", "PERSYS_DATA_DIR", "PERSYS_GRPC_ADDR"):
        env.pop(name)
    flags = ("--insecure", "--listen", "127.0.0.1", "--port", str(port), "--data-dir", str(data))
    before = _starts(log)
    where = ("--runtime", "memory", "--scheduler", scheduler)
    async with started("persys-agent", "run", *where, *flags, log=log, env=env) as program:
        await eventually(
            lambda: program.process.returncode is not None or _starts(log) > before, "it starts"
        )
        assert program.process.returncode is None, program.text
        yield program


def _starts(log: Path) -> int:
    return log.read_text().count("event='started'") if log.exists() else 0


def job(workload_id: str, image: str) -> pb.ApplyWorkloadRequest:
    """A wish for a container that is not to be started again."""
    wish = container(workload_id, image)
    wish.spec.container.restart_policy = "no"
    return wish


async def status_at(port: int, workload_id: str) -> agent_pb2.WorkloadStatus:
    """What the agent itself says."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = agent_pb2.GetWorkloadStatusRequest(id=workload_id)
        return (await agent_service_stub(channel).GetWorkloadStatus(request)).status


async def ends(port: int, workload_id: str) -> grpc.StatusCode:
    """Wait until the agent has no status of it; the error's code."""
    async with asyncio.timeout(20):
        while True:
            try:
                await status_at(port, workload_id)
            except grpc.aio.AioRpcError as error:
                return error.code()
            await asyncio.sleep(0.05)


async def reaches(running: Server, workload_id: str, *wanted: str) -> pb.WorkloadView:
    """Wait until the scheduler shows one of these."""
    async with client(running.address) as stub, asyncio.timeout(30):
        while True:
            request = pb.GetWorkloadRequest(workload_id=workload_id)
            view = (await stub.GetWorkload(request)).workload
            if view.status in wanted:
                return view
            await asyncio.sleep(0.05)


async def test_a_workload_lives_on_a_real_agent(tmp_path: Path) -> None:
    """Applied, running, told apart from a finished job and from an image that is not there; the
    agent killed and started again goes on; deleted, it is gone."""
    port = free_port()
    async with server(tmp_path) as running, client(running.address) as stub:
        async with agent(tmp_path / "agent.log", running.address, port) as process:
            for wish in (
                container("web"),
                job("done", "exit0"),
                job("broken", "registry/missing:1"),
            ):
                assert (await stub.ApplyWorkload(wish)).success
            await reaches(running, "web", "Running")
            await reaches(running, "done", "Completed")
            view = await reaches(running, "broken", "RetryPending", "Failed")
            assert view.reason.code == "image_not_found"
            process.signal(signal.SIGKILL)
            await process.ended()
        async with agent(tmp_path / "agent.log", running.address, port) as process:
            await reaches(running, "web", "Running")
            status = await status_at(port, "web")
            assert status.revision_id
            await stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="web"))
            assert await ends(port, "web") is grpc.StatusCode.UNKNOWN
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
            assert "Traceback" not in process.text
            assert "bug:" not in process.text


async def test_a_state_in_use_ends_the_start_with_one(tmp_path: Path) -> None:
    """The error names the other process, and that one works on."""
    address = f"127.0.0.1:{free_port()}"
    async with agent(tmp_path / "agent.log", address, free_port()) as first:
        env = {**server_environment(tmp_path), "PERSYS_METRICS_PORT": "0"}
        env.pop("PERSYS_GRPC_ADDR")
        log = tmp_path / "second.log"
        flags = ("--runtime", "memory", "--insecure", "--data-dir", str(tmp_path / "agent.data"))
        async with started("persys-agent", "run", *flags, log=log, env=env) as second:
            assert await second.ended(20) == 1
        assert f"in use by process {first.process.pid}" in second.text
        assert "Traceback" not in second.text
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0

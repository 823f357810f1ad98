"""Agents that do nothing but answer, each at a port of its own, in another process.

`python -m benchmarks.mirror_agents NODES PER_NODE` prints one endpoint per line, then `ready`, and
serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc.aio

from benchmarks.steady_cluster import reports_of
from persys_core.model.observation import AgentReport
from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.agent.v1 import agent_pb2_grpc

__all__ = ["mirror_agents"]


class MirrorAgent(agent_pb2_grpc.AgentServiceServicer):
    """Lists the same workloads each time it is asked."""

    def __init__(self, answer: wire.ListWorkloadsResponse) -> None:
        self._answer = answer

    async def ListWorkloads(
        self, request: wire.ListWorkloadsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.ListWorkloadsResponse:
        """All workloads of the node."""
        return self._answer


def _status(report: AgentReport) -> wire.WorkloadStatus:
    at = int(report.reported_at.timestamp()) if report.reported_at else 0
    return wire.WorkloadStatus(
        id=report.workload_id,
        type=wire.WORKLOAD_TYPE_CONTAINER,
        revision_id=report.revision_id,
        desired_state=wire.DESIRED_STATE_RUNNING,
        actual_state=wire.ACTUAL_STATE_RUNNING,
        message=report.message,
        created_at=at,
        updated_at=at,
        metadata=report.metadata,
    )


async def _serve(nodes: int, per_node: int) -> None:
    servers = []
    for number in range(nodes):
        answer = wire.ListWorkloadsResponse(workloads=map(_status, reports_of(number, per_node)))
        server = grpc.aio.server()
        agent_pb2_grpc.add_AgentServiceServicer_to_server(MirrorAgent(answer), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        print(f"127.0.0.1:{port}")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(server.stop(None) for server in servers))


@contextmanager
def mirror_agents(nodes: int, per_node: int) -> Iterator[list[str]]:
    """The endpoints of so many agents, which live as long as the context."""
    command = [sys.executable, "-m", __name__, str(nodes), str(per_node)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            endpoints = [line.strip() for line in iter(process.stdout.readline, "ready\n") if line]
            yield endpoints
        finally:
            process.stdin.close()
            process.wait(30)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
